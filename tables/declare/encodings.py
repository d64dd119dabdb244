"""The encodings of records: one entry each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, cast

from twofold.infra.errors import BadDeclaration

if TYPE_CHECKING:
    from twofold.infra.encodings.column_types import FieldType
    from twofold.infra.encodings.parsed_records import Parser
    from twofold.infra.encodings.schema_files import Schema

    FieldTypes = Callable[[Schema], Mapping[str, Callable[[], FieldType]]]
    Differences = Callable[[Schema, Schema], Iterator[str]]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How records become columns. Classes and functions go by `module:name`, and are imported when they are needed.

    Attributes:
        parser: the class that parses records, a `Parser`.
        schema_suffix: of the files that hold its schemas; empty: a record needs none.
        field_types: the function that gives the fields of a schema, with what computes the type of each.
        differences: the function that gives what records of one schema have that another one cannot read.
        outbox: a row of a captured database may hold a record.
        of_changes: records are changes of a captured table, and marks among them.
    """

    parser: str
    schema_suffix: str = ""
    field_types: str = ""
    differences: str = ""
    outbox: bool = False
    of_changes: bool = False

    @property
    def parser_class(self) -> type[Parser]:
        """The class that parses records."""
        return cast("type[Parser]", resolve_name(self.parser))

    def types_in(self, schema: Schema) -> Mapping[str, Callable[[], FieldType]]:
        """Maps each field of a schema to a function that computes its type.

        Raises:
            BadSchema: it cannot be read.
        """
        return cast("FieldTypes", resolve_name(self.field_types))(schema)

    def unreadable(self, writer: Schema, reader: Schema) -> Iterator[str]:
        """Lists the parts of one schema that another one cannot read, for people.

        Raises:
            BadSchema: one of them cannot be read.
        """
        return cast("Differences", resolve_name(self.differences))(writer, reader)


ENCODINGS = {
    "json": Encoding(parser="twofold.infra.encodings.json.json_decoder:JsonParser", outbox=True),
    "avro": Encoding(
        parser="twofold.infra.encodings.avro.avro_decoder:AvroParser",
        schema_suffix=".avsc",
        field_types="twofold.infra.encodings.avro.avro_schema:field_types",
        differences="twofold.infra.encodings.avro.avro_resolution:unreadable_fields",
    ),
    "protobuf": Encoding(
        parser="twofold.infra.encodings.protobuf.protobuf_decoder:ProtobufParser",
        schema_suffix=".proto",
        field_types="twofold.infra.encodings.protobuf.protobuf_schema:field_types",
        differences="twofold.infra.encodings.protobuf.protobuf_schema:unreadable_fields",
    ),
    "debezium": Encoding(parser="twofold.features.capture.debezium_decoder:DebeziumParser", of_changes=True),
}


def find_encoding(name: str) -> Encoding:
    """Returns the encoding of that name; `module:Class` is a custom parser.

    Raises:
        BadDeclaration: there is none, or its parser cannot be imported.
    """
    if name in ENCODINGS:
        return ENCODINGS[name]
    if ":" not in name:
        raise BadDeclaration(
            f"encoding={name!r}: expected {', '.join(map(repr, ENCODINGS))}, or 'module:Class' of a parser of your own."
        )
    try:
        resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadDeclaration(
            f"encoding={name!r}: {error}.", hint="Name the module from the root of the repository on."
        ) from error
    return Encoding(parser=name)
