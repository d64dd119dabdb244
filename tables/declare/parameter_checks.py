"""Validates single parameters of declarations."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from twofold.infra.duration import parse_duration
from twofold.infra.errors import BadDeclaration, nearest
from twofold.quality.rules import Rule

NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
FACTS = ("several", "kinds", "lineage", "untraced", "influences", "window")
"""What the inference says of a table apart from its parameters."""
BOUND = frozenset({"domain", "name", "description", *FACTS, "inferred", "redundant", "result_columns"})
"""Fields that no declaration gives: its folder, its name, the first line of the file's docstring, what is inferred."""


def duration_checks(declaration: object, names: Iterable[str]) -> list[Callable[[], object]]:
    """Lists checks of the fields that hold a duration."""
    values = {name: getattr(declaration, name) for name in names}
    return [partial(parse_duration, value, name) for name, value in values.items() if value is not None]


def require_known(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuses an unknown parameter.

    Raises:
        BadDeclaration: names it, and the nearest known one.
    """
    for name in given:
        if name not in known:
            hint = nearest(name, known, f"It takes {', '.join(known)}.")
            raise BadDeclaration(f"{what} has no parameter {name!r}.", hint=hint)


def set_fields(declaration: object, **values: Any) -> None:
    """Sets fields of a frozen dataclass during its initialization."""
    for name, value in values.items():
        object.__setattr__(declaration, name, value)


def require_list(name: str, value: object) -> None:
    """Refuses a text in place of a list of columns."""
    if isinstance(value, str):
        raise BadDeclaration(f"{name}={value!r}: expected a list of columns.", hint=f"Write {name}=[{value!r}].")


def require_names(columns: Iterable[str]) -> None:
    """Refuses names that no column can have, and names that SQL considers equal."""
    by_name: dict[str, str] = {}
    for column in columns:
        if not COLUMN.match(column) or keyword.iskeyword(column):
            raise BadDeclaration(
                f"{column!r} cannot name a column.",
                hint="Use letters, digits and _, a letter first; names that begin with _ are the platform's.",
            )
        other = by_name.setdefault(column.lower(), column)
        if other != column:
            raise BadDeclaration(f"The columns {column!r} and {other!r} differ only in case, which SQL ignores.")


def require_columns(what: str, wanted: Sequence[str], columns: Mapping[str, object]) -> None:
    """Refuses columns that a schema lacks."""
    missing = [column for column in wanted if column not in columns]
    if missing:
        raise BadDeclaration(
            f"{what} names {', '.join(missing)}, which the schema lacks.",
            hint=f"It has {', '.join(columns) or 'no columns'}.",
        )


def require_rules(
    rules: Sequence[object], *, allowed: frozenset[str] | None, columns: Mapping[str, object] | None, of: str
) -> None:
    """Refuses values that are no rules, and rules that need more than one record or name unknown columns."""
    for rule in rules:
        if not isinstance(rule, Rule):
            raise BadDeclaration(f"checks holds {rule!r}; expected rules.", hint="Import them from twofold.")
        if allowed is not None and rule.kind not in allowed:
            raise BadDeclaration(
                f"The rule {rule} cannot be decided on a record alone.",
                hint=f"Rules of {of}: {', '.join(sorted(allowed))}.",
            )
        if columns is not None:
            require_columns(f"The rule {rule}", rule.columns, columns)
