"""Builds columns from Protobuf messages, as the runtime reads them."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from twofold.infra.encodings.column_builder import ColumnBuilder, Numbers
from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.protobuf.protobuf_schema import DOUBLE, ENUM, FLOAT, TIMESTAMP, Message, is_map, is_wrapper
from twofold.infra.instants import FIRST_US, LAST_US

_NANOS = 1_000_000_000


class ProtobufColumns(ColumnBuilder):
    """Builds the columns of a batch of messages."""

    def fields(
        self, messages: list[Any], message: Message, kind: FieldType, records: Numbers, path: str = ""
    ) -> Iterator[pa.Array]:
        """Yields the columns of those fields that the type names; a message that is None is null."""
        for name, inner in kind.fields:
            yield self._field(messages, message.fields_by_name[name], inner, records, f"{path}.{name}")

    def _field(self, messages: list[Any], field: Any, kind: FieldType, records: Numbers, path: str) -> pa.Array:
        name, get = field.name, attrgetter(field.name)
        if field.has_presence:
            values = [None if message is None or not message.HasField(name) else get(message) for message in messages]
            if not kind.nullable and None in values:
                missing = [
                    value is None and message is not None for value, message in zip(values, messages, strict=True)
                ]
                self._refuse(missing, records, "Object is missing the required field", path)
        else:
            values = [None if message is None else get(message) for message in messages]
        if is_map(field):
            item, inner = field.message_type.fields_by_name["value"], kind.element or kind
            return self.maps(kind, values, records, lambda items, of: self._values(items, item, inner, of, f"{path}[]"))
        if field.is_repeated:
            inner = kind.element or kind
            return self.lists(
                kind, values, records, lambda items, of: self._values(items, field, inner, of, f"{path}[]")
            )
        return self._values(values, field, kind, records, path)

    def _values(self, values: list[Any], field: Any, kind: FieldType, records: Numbers, path: str) -> pa.Array:
        """Builds the column of a field that is not repeated; None is null."""
        message = field.message_type
        if message is not None and message.full_name == TIMESTAMP:
            return self._instants(values, kind, records, path)
        if is_wrapper(message):
            inner = [value if value is None else value.value for value in values]
            return self._values(inner, message.fields_by_name["value"], kind, records, path)
        if message is not None:
            return self.struct(kind, list(self.fields(values, message, kind, records, path)), values)
        if field.type == ENUM and kind.name == "string":
            names = {number: symbol.name for number, symbol in field.enum_type.values_by_number.items()}
            foreign = [value is not None and value not in names for value in values]
            self._refuse(foreign, records, f"Expected a symbol of {field.enum_type.name}", path)
            values = [names.get(value) for value in values]
        elif field.type in (DOUBLE, FLOAT):
            return self.doubles(values, records)
        elif kind.name == "decimal":  # of 64 bits without a sign
            return pa.array(values, pa.uint64()).cast(kind.arrow)
        return pa.array(values, kind.arrow)

    def _instants(self, values: list[Any], kind: FieldType, records: Numbers, path: str) -> pa.Array:
        seconds = [0 if value is None else value.seconds for value in values]
        beyond = [not FIRST_US // 1_000_000 <= second <= LAST_US // 1_000_000 for second in seconds]
        self._refuse(beyond, records, "expected a year from 1 to 9999 in UTC", path)
        for value, record in zip(values, records.tolist(), strict=True):
            if value is not None and (not 0 <= value.nanos < _NANOS or value.nanos % 1_000):
                reason = f"Expected whole microseconds, got {value.nanos} nanoseconds at `{path.removeprefix('.')}`"
                self.misfits.setdefault(record, reason)
        micros = [
            None if value is None or late else value.seconds * 1_000_000 + value.nanos // 1_000
            for value, late in zip(values, beyond, strict=True)
        ]
        return pa.array(micros, pa.int64()).cast(kind.arrow)

    def _refuse(self, bad: list[bool], records: Numbers, reason: str, path: str) -> None:
        self.refuse(np.array(bad, bool), records, f"{reason} at `{path.removeprefix('.')}`")
