"""Refusals of names, and of what a file calls or imports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twofold.infra.errors import nearest
from twofold.tables.declare.refusals.declaration_refusal import DeclarationRefusal
from twofold_algebra.refusal import Subject

NOT_RETURNED = DeclarationRefusal(
    name="column-that-is-not-returned",
    subject=Subject.NAMES,
    shape="{parameter} names {columns}",
    why="{function} does not return it",
    instead="{near_names}",
)


def not_returned(
    function: Callable[..., object], parameter: str, missing: Sequence[str], columns: Sequence[str]
) -> dict[str, str]:
    """Returns the details of `NOT_RETURNED`."""
    return {
        "parameter": parameter,
        "columns": ", ".join(missing),
        "function": function.__name__,
        "near_names": nearest(missing[0], columns, f"It returns {', '.join(columns)}."),
    }


PLATFORM = DeclarationRefusal(
    name="column-of-the-platform",
    subject=Subject.NAMES,
    shape="the columns {columns} begin with _",
    why="such names are kept for the platform",
    instead="Rename them.",
)
NO_INPUT = DeclarationRefusal(
    name="function-without-parameters",
    subject=Subject.NAMES,
    shape="{function} has no parameters",
    why="they name the topics and tables that it reads",
    instead="Name an input as a parameter of the function.",
)
UNKNOWN_INPUT = DeclarationRefusal(
    name="input-that-is-not-declared",
    subject=Subject.NAMES,
    shape="{function} reads {name!r}",
    why="it is no topic or table of the domain {domain}",
    instead="{near_names}",
)
HEAVY_IMPORT = DeclarationRefusal(
    name="import-of-a-heavy-package",
    subject=Subject.NAMES,
    shape="line {line} imports {module} when the file is loaded",
    why="declarations are loaded often and fast",
    instead="`from twofold import DataFrame, F, Window` costs nothing; import other names inside the function.",
)
