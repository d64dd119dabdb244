"""Compiles Protobuf schemas, derives the column types of their messages, and compares a writer's with a reader's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.record_format import BadSchema
from twofold.infra.encodings.schema_files import Schema
from twofold.infra.errors import BadDeclaration
from twofold.infra.extras import require_extra

require_extra("protobuf")  # which no import does: protoc is a program
Message = Any
"""A descriptor of google.protobuf: of a message, whose fields have descriptors too."""
_FILE = "schema.proto"
_COMPILE_S = 60
TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = "google.protobuf.", "Value"
DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING, GROUP, MESSAGE, BYTES, UINT32, ENUM = range(1, 15)
SFIXED32, SFIXED64, SINT32, SINT64 = range(15, 19)
_NAMES = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
_TYPES = {
    **dict.fromkeys([DOUBLE, FLOAT], FieldType(name="double")),
    **dict.fromkeys([INT32, SINT32, SFIXED32], FieldType(name="int")),
    **dict.fromkeys([INT64, SINT64, SFIXED64, UINT32, FIXED32], FieldType(name="long")),
    **dict.fromkeys([UINT64, FIXED64], FieldType(name="decimal", precision=20)),
    BOOL: FieldType(name="boolean"),
    **dict.fromkeys([STRING, ENUM], FieldType(name="string")),
    BYTES: FieldType(name="binary"),
}
_WIDENED = {(INT32, INT64), (UINT32, UINT64), (UINT32, INT64), (BOOL, INT32), (BOOL, INT64), (SINT32, SINT64)}
_WIDENED |= {(STRING, BYTES), (ENUM, INT32), (ENUM, INT64)}


@lru_cache(maxsize=256)
def compiled_proto(schema: Schema) -> Any:
    """Compiles a schema and returns its file descriptor.

    Raises:
        BadSchema: protoc refuses it; the message holds its output.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    with TemporaryDirectory() as folder:
        for name, text in (*schema.imports, (_FILE, schema.text)):
            place = PurePosixPath(name)
            if place.is_absolute() or ".." in place.parts:
                raise BadSchema(f"it imports {name!r}, which is no name of a file below it")
            path = Path(folder) / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        out = Path(folder) / "descriptors"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
        ran = subprocess.run(
            [*command, f"--descriptor_set_out={out}", _FILE], capture_output=True, text=True, timeout=_COMPILE_S
        )
        if ran.returncode:
            said = [line.replace(f"{folder}/", "") for line in ran.stderr.splitlines()]
            errors = [line for line in said if line.startswith(_FILE)] or said
            raise BadSchema(f"no Protobuf schema: {'; '.join(errors) or ran.returncode}")
        files = FileDescriptorSet.FromString(out.read_bytes())
    pool = DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(_FILE)


def message_of(schema: Schema, numbers: Sequence[int] = (0,)) -> Message:
    """Finds a message by its numbers, each an index among the messages within the one before.

    Raises:
        BadSchema: there is no such message, or it contains itself.
    """
    file = compiled_proto(schema)
    within = [file.message_types_by_name[name] for name in file.message_types_by_name]
    message = None
    for number in numbers:
        if not 0 <= number < len(within):
            raise BadSchema(f"it has no message {list(numbers)}")
        message = within[number]
        within = list(message.nested_types)
    if message is None:
        raise BadSchema("it has no message")
    _require_bounded(message, ())
    return message


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def is_wrapper(message: Message | None) -> bool:
    """Whether a message is one of the well-known wrappers of a single value, which is null if the wrapper is absent."""
    if message is None:
        return False
    begin, end = _WRAPPERS
    return bool(message.full_name.startswith(begin) and message.full_name.endswith(end) and len(message.fields) == 1)


def checks_text(file: Any) -> bool:
    """Whether the runtime refuses invalid UTF-8 in messages of a file and of its imports, as it does for proto3."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    content = FileDescriptorProto()
    file.CopyToProto(content)
    return content.syntax == "proto3" and all(map(checks_text, file.dependencies))


def field_types(schema: Schema) -> dict[str, Callable[[], FieldType]]:
    """Maps each field of the first message to a function that computes the type of its column.

    Raises:
        BadSchema: the schema cannot be read.
    """
    return {name: partial(column_type, field, name) for name, field in message_of(schema).fields_by_name.items()}


def unreadable_fields(writer: Schema, reader: Schema) -> Iterator[str]:
    """Lists the parts of one schema that another one cannot read.

    Raises:
        BadSchema: one of them cannot be read.
    """
    return differences(message_of(writer), message_of(reader))


def column_type(field: Any, path: str) -> FieldType:
    """Returns the type of a column for values of a field.

    Raises:
        BadDeclaration: no type fits.
    """
    if is_map(field):
        key, value = field.message_type.fields
        if key.type == STRING and "." not in path and "[" not in path:
            return FieldType(name="map", element=_value_type(value, f"{path}[]"))
        raise BadDeclaration(
            f"the field {path} is a map within another type, or one without strings as keys, which no column can be.",
            hint="Name the columns that the topic needs in `schema`.",
        )
    kind = _value_type(field, path)
    if field.is_repeated:
        return FieldType(name="array", element=kind)
    return FieldType(**{**vars(kind), "nullable": field.has_presence and not field.is_required})


def _value_type(field: Any, path: str) -> FieldType:
    message = field.message_type
    if message is None:
        return _TYPES[field.type]
    if message.full_name == TIMESTAMP:
        return FieldType(name="timestamp")
    if is_wrapper(message):
        return _TYPES[message.fields[0].type]
    if not message.fields:
        raise BadDeclaration(
            f"the field {path} is a message without a field, which no column can be.",
            hint="Name the columns that the topic needs in `schema`.",
        )
    parts = tuple((part.name, column_type(part, f"{path}.{part.name}")) for part in message.fields)
    return FieldType(name="struct", fields=parts)


def differences(writer: Message, reader: Message, path: str = "") -> Iterator[str]:
    """Yields the fields of the writer's message that the reader's cannot read; fields are matched by number."""
    by_number = reader.fields_by_number
    for field in writer.fields:
        other, place = by_number.get(field.number), f"{path}.{field.name}".removeprefix(".")
        if other is None:
            continue
        if field.is_repeated != other.is_repeated or not (
            field.type == other.type or (field.type, other.type) in _WIDENED
        ):
            yield f"`{place}` was written as {_shown(field)} and is read as {_shown(other)}"
        elif field.type == ENUM and other.type == ENUM:
            missing = [v.name for v in field.enum_type.values if v.number not in other.enum_type.values_by_number]
            if missing:
                yield f"`{place}` was written with the symbol {missing[0]}, which is not read"
        elif field.message_type is not None and other.message_type is not None:
            if (field.message_type.full_name == TIMESTAMP) != (other.message_type.full_name == TIMESTAMP):
                yield f"`{place}` was written as {field.message_type.name} and is read as {other.message_type.name}"
            else:
                yield from differences(field.message_type, other.message_type, place)
    written = {field.number for field in writer.fields}
    for field in reader.fields:
        if field.is_required and field.number not in written:
            yield f"the field `{path}.{field.name}` was not written and is required".replace("`.", "`")


def _shown(field: Any) -> str:
    return f"{'repeated ' * field.is_repeated}{_NAMES[field.type - 1]}"


def _require_bounded(message: Message, within: tuple[str, ...]) -> None:
    if message.full_name in within:
        raise BadSchema(f"the message {message.full_name} contains itself")
    for field in message.fields:
        if field.type == GROUP:
            raise BadSchema(f"the field {field.name} is a group, which is not read")
        if field.message_type is not None:
            _require_bounded(field.message_type, (*within, message.full_name))
