"""Compares a topic with the schemas of its subject: its columns, and fields in records of older schemas."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.record_format import BadSchema
from twofold.infra.encodings.schema_files import SchemaFiles
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.encodings import Encoding
from twofold.tables.declare.record_fields import record_types


def schema_columns(
    files: SchemaFiles, encoding: Encoding, declared: Mapping[str, str], required: Collection[str]
) -> dict[str, str]:
    """Returns the columns of all fields of the newest schema, or of the declared ones, with their types.

    Args:
        required: columns that cannot be null, though the schema lets them.

    Raises:
        BadDeclaration: a column that the schema has not, or that it has with another type; a field that no column can
            be; a schema that cannot be read.
    """
    newest = f"schemas/{files.subject}/{list(files.by_id)[-1]}"
    try:
        fields = encoding.types_in(files.newest)
    except BadSchema as error:
        raise BadDeclaration(f"{newest}: {error}.") from None
    if not declared:
        return {name: kind().text.removesuffix("?" * (name in required)) for name, kind in fields.items()}
    for column, wanted in record_types(declared).items():
        if column not in fields:
            raise BadDeclaration(f"{newest} has no field {column}.", hint=f"It has {', '.join(fields)}.")
        kind = fields[column]()
        if not _fits(replace(kind, nullable=False), replace(wanted, nullable=False)):
            raise BadDeclaration(
                f"{column} is declared {wanted.text!r}; {newest} has {kind.text!r}.",
                hint="Leave `schema` out to have every field with its type.",
            )
    return dict(declared)


def _fits(found: FieldType, declared: FieldType) -> bool:
    """Whether each value of the schema's type belongs to the declared type; fields of structs may be left out."""
    if found.name != declared.name or (found.nullable and not declared.nullable):
        return False
    if found.name == "struct":
        fields_of = dict(found.fields)
        return all(name in fields_of and _fits(fields_of[name], kind) for name, kind in declared.fields)
    if found.element is not None and declared.element is not None:
        return _fits(found.element, declared.element)
    return (found.precision, found.scale) == (declared.precision, declared.scale)


def incompatible_changes(files: SchemaFiles, encoding: Encoding) -> list[BadDeclaration]:
    """Lists the parts of each older schema that the newest one cannot read, one fault per schema."""
    *older, newest = files.by_id
    mistakes = []
    for id_ in older:
        try:
            reasons = list(encoding.unreadable(files.by_id[id_], files.newest))
        except BadSchema as error:
            reasons = [str(error)]
        if reasons:
            mistakes.append(
                BadDeclaration(
                    f"schemas/{files.subject}/{newest} cannot read what was written by {id_}: {'; '.join(reasons)}.",
                    hint="Give a new field a default, and keep the type of one that there is.",
                )
            )
    return mistakes
