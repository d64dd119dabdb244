"""A capability as a value: what its folder brings to the rest, which imports none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

from twofold.infra import PACKAGE


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A capability, which the file `feature.py` of its folder names `FEATURE`.

    Values of the code are named as `module:attribute`, and imported when they are used.

    Attributes:
        words: what declarations import of it by `from twofold import ...`.
        commands: panel of the help, command of the core that they follow, or the group `new` -> functions of commands,
            in their order, or groups of such.
        services: what `up` starts for it, in the order in which it waits for them.
        ledgers: Delta table that the platform writes -> its schema.
        audits: functions of platform, tables and turn that compare these with what other systems have of them.
        parts: field of a snapshot -> a function of lake, declarations and moment that looks at it.
        symptoms: kinds of them, found in a snapshot.
        cover: the class of what covers values of records, where this feature does.
        checks: part of the platform -> a function of settings and declarations, which raises what is wrong with it.
        derived: what the feature makes of all declared tables -> a function of settings and declarations that makes it
            again; `up` calls it when all else is ready, `apply` when the code of tables has been replaced.
        chores: functions of lake, declarations and moment that find what `maintain` can remove.
    """

    words: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    services: Sequence[str] = ()
    ledgers: Mapping[str, str] = field(default_factory=dict)
    audits: Sequence[str] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    symptoms: Sequence[str] = ()
    cover: str = ""
    checks: Mapping[str, str] = field(default_factory=dict)
    derived: Mapping[str, str] = field(default_factory=dict)
    chores: Sequence[str] = ()


@cache
def features() -> Sequence[Feature]:
    """Loads the demo and the features that are there, by the names of their folders."""
    files = sorted([*PACKAGE.glob("demo/feature.py"), *PACKAGE.glob("features/*/feature.py")])
    names = [".".join(file.relative_to(PACKAGE).with_suffix("").parts) for file in files]
    return [import_module(f"twofold.{name}").FEATURE for name in names]


def words() -> Mapping[str, str]:
    """Returns what declarations import of the features."""
    return {word: name for feature in features() for word, name in feature.words.items()}
