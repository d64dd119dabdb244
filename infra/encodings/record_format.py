"""The format of a topic's records, and the errors of records that do not fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from twofold.infra.encodings.column_types import FieldType

if TYPE_CHECKING:
    from twofold.infra.encodings.schema_files import SchemaFiles

OPERATION, MARK = "cdc_op", "mark"
"""Of an encoding of changes, the column with the kind of a change; its value for a mark, which belongs to no row."""


@dataclass(frozen=True, kw_only=True)
class RecordFormat:
    """The format of the records of a topic, as parsers need it.

    Attributes:
        topic: its full name.
        types: field of a record -> type.
        unknown_fields: for fields that are not among these: refuse the record, ignore them, or keep them as JSON.
        max_bytes: of a value.
        key: the fields that identify a record.
        table: of a captured database, whose changes the records are.
        schema_files: the writers' schemas, for encodings that need them.
    """

    topic: str
    types: Mapping[str, FieldType]
    unknown_fields: Literal["refuse", "ignore", "keep"] = "refuse"
    max_bytes: int = 65_536
    key: Sequence[str] = ()
    table: str = ""
    schema_files: SchemaFiles | None = None

    @property
    def record_type(self) -> FieldType:
        """The record as one struct."""
        return FieldType(name="struct", fields=tuple(self.types.items()))


class Misfit(ValueError):
    """A value that its type cannot hold.

    Attributes:
        reason: what was expected, and what was found.
        path: where, from the outermost field on: `.name` or `[n]`.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{reason} at `{path.removeprefix('.')}`")
        self.reason, self.path = reason, path


class BadSchema(ValueError):
    """A schema that cannot be read, or that cannot be used to read the records."""
