"""Parses Debezium's change events of PostgreSQL to rows with their operation and position."""

from __future__ import annotations

import hashlib
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from twofold.features.capture.captured_table import LOST, MARK_PREFIX, UNCHANGED, again, snapshot_number
from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.json.json_decoder import JsonParser
from twofold.infra.encodings.parsed_records import Parsed, sized
from twofold.infra.encodings.record_format import MARK, OPERATION, RecordFormat
from twofold.infra.instants import FIRST_US, LAST_US

OPERATIONS = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete"}
_NULL = b"null"
_LONGEST_MARKER = 8 * len(UNCHANGED)
"""No form of it is longer as JSON: numbers of up to three digits, with commas and spaces between."""
_FIRST_DAY, _LAST_DAY = date.min.toordinal(), date.max.toordinal()
EPOCH_DAY = date(1970, 1, 1).toordinal()
_OTHER_TYPE = "the column may have got another type than the declared one"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Source(msgspec.Struct):
    sequence: str
    ts_us: int
    lsn: int | None = None
    name: str = ""
    snapshot: str = "false"
    txId: int | None = None


class _Message(msgspec.Struct):
    prefix: str
    content: str


class _Envelope(msgspec.Struct):
    op: str
    source: _Source
    message: _Message | None = None
    before: dict[str, msgspec.Raw] | None = None
    after: dict[str, msgspec.Raw] | None = None


class _Refused(ValueError):
    pass


class _Named(msgspec.Struct):
    name: str


class _Sourced(msgspec.Struct):
    source: _Named


class _Change(msgspec.Struct):
    op: str
    source: msgspec.Raw
    before: dict[str, msgspec.Raw] | None = None
    after: dict[str, msgspec.Raw] | None = None


@dataclass(frozen=True)
class DebeziumParser:
    """Parses change events: converts each to a flat JSON object, which the JSON parser checks against the schema."""

    format: RecordFormat

    def parse(self, raw: pa.Table) -> Parsed:
        """Parses change events; returns the rows that fit the schema, and the faults of the others."""
        values: list[bytes | None] = []
        faults: dict[int, list[str]] = {}
        for row, value in enumerate(raw["value"].to_pylist()):
            flat = None
            unfit = sized(value, self.format.max_bytes, "a change event of Debezium")
            if unfit is not None:
                faults[row] = [unfit]
            else:
                try:
                    flat = self._flat(value)
                except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
                    faults[row] = [str(error)]
            values.append(flat)
        at = raw.schema.get_field_index("value")
        parsed = self._json.parse(raw.set_column(at, raw.schema.field(at), pa.array(values, pa.binary())))
        return replace(parsed, faults={**parsed.faults, **faults})

    def keys(self, values: Sequence[bytes | None]) -> pa.Table:
        """Returns the primary keys of refused changes; unreadable ones are left out."""
        deletions = pa.array([_as_deletion(value) for value in values], pa.binary())
        columns = self.parse(pa.table({"value": deletions})).columns
        return pa.table({name: columns[name] for name in self.format.key if not name.startswith("cdc_")})

    def _flat(self, value: bytes) -> bytes:
        change = self._decoder.decode(value)
        if change.message is not None and change.message.prefix == MARK_PREFIX:
            return _event({}, MARK, change.source, at_us=int(b64decode(change.message.content)))
        operation = OPERATIONS.get(change.op)
        if change.op == "t":
            raise _Refused(
                f"the table {self.format.table} was truncated, which removes rows that no change names: "
                + again(self.format.topic)
            )
        if operation is None:
            raise _Refused(f"`op` is {change.op!r}: expected one of {', '.join(OPERATIONS)}")
        image = change.before if operation == "delete" else change.after
        if image is None:
            raise _Refused(f"a change of kind {operation!r} without a row")
        row: dict[str, Any] = {}
        unchanged: list[str] = []
        for column, cell in image.items():
            kind = self._kinds.get(column)
            if operation == "delete" and column not in self._key:
                continue
            if self._did_not_travel(bytes(cell)):
                unchanged.append(column)
            else:
                row[column] = cell if kind is None else _converted(column, cell, kind)
        if unchanged and operation != "update":
            raise _Refused(
                f"a changed primary key without the values of {', '.join(sorted(unchanged))}, which the database does "
                f"not send: ALTER TABLE {self.format.table} REPLICA IDENTITY FULL; " + again(self.format.topic)
            )
        missing = [] if operation == "delete" else sorted(self._columns - image.keys())
        return _event(row, operation, change.source, at_us=change.source.ts_us, unchanged=unchanged, missing=missing)

    def _did_not_travel(self, cell: bytes) -> bool:
        return len(cell) <= _LONGEST_MARKER and cell.translate(None, b" \n") in self._markers

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[_Envelope]:
        return msgspec.json.Decoder(_Envelope)

    @property
    def _kinds(self) -> Mapping[str, FieldType]:
        return self.format.types

    @cached_property
    def _columns(self) -> frozenset[str]:
        return frozenset(name for name in self._kinds if not name.startswith("cdc_"))

    @cached_property
    def _key(self) -> frozenset[str]:
        return frozenset(self.format.key)

    @cached_property
    def _json(self) -> JsonParser:
        # A mark has no key; of a change the decoder refuses a null where the schema has none.
        types = {n: t if n.startswith("cdc_") else replace(t, nullable=True) for n, t in self._kinds.items()}
        # What comes from the event is as long as it, but for times, which are longer as text.
        return JsonParser(replace(self.format, types=types, max_bytes=4 * self.format.max_bytes))

    @cached_property
    def _markers(self) -> frozenset[bytes]:
        """The placeholders for a value that was not sent, as JSON, in each form that Debezium gives them."""
        text = UNCHANGED.encode()
        # As Java's UUID.nameUUIDFromBytes.
        named = uuid.UUID(bytes=hashlib.md5(text, usedforsecurity=False).digest(), version=3)
        forms = [UNCHANGED, b64encode(text).decode(), [UNCHANGED], [*text], [str(named)], [b64encode(text).decode()]]
        return frozenset(msgspec.json.encode(form) for form in forms)


def _event(
    row: Mapping[str, Any],
    operation: str,
    source: _Source,
    *,
    at_us: int,
    unchanged: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> bytes:
    """Encodes the event as a flat JSON object."""
    snapshot, commit, position = _place(source, operation)
    return msgspec.json.encode(
        {
            **row,
            OPERATION: operation,
            "cdc_snapshot": snapshot,
            "cdc_commit_lsn": commit,
            "cdc_lsn": position,
            "cdc_at": _instant(at_us),
            "cdc_transaction": source.txId,
            "cdc_unchanged": sorted(unchanged),
            "cdc_missing": ", ".join(missing) or None,
        }
    )


def snapshot_of(value: bytes | None) -> int | None:
    """Returns the number of the snapshot that a change belongs to or follows; None if it cannot be read."""
    try:
        return snapshot_number(msgspec.json.decode(value or b"", type=_Sourced).source.name)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def placeholder_finder(format: RecordFormat) -> Callable[[bytes], bool]:
    """Returns a function that says whether a JSON value stands for one that did not travel."""
    return DebeziumParser(format)._did_not_travel


def names_no_row(value: bytes | None) -> bool:
    """Whether a change truncates the whole table, or stands for changes that are lost."""
    try:
        return msgspec.json.decode(value or b"", type=_Change).op in ("t", LOST)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def _as_deletion(value: bytes | None) -> bytes | None:
    """Converts a change to a deletion, of which only the key is read."""
    try:
        change = msgspec.json.decode(value or b"", type=_Change)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return msgspec.json.encode({"op": "d", "source": change.source, "before": change.after or change.before})


def _place(source: _Source, operation: str) -> tuple[int, int | None, int]:
    """Returns the snapshot's number, the LSN of the previous commit, and the LSN of the change."""
    if source.snapshot == "incremental":  # read again for a signal to Debezium: no change, without a place in the log
        return 0, 0, 0
    number = snapshot_number(source.name)
    if operation == "snapshot" or source.snapshot != "false":
        return number, source.lsn, 0
    commit, position = _position(source.sequence)
    return number, position if commit is None else commit, position


def _position(sequence: str) -> tuple[int | None, int]:
    """Parses `source.sequence`: the LSNs of the previous commit and of the change."""
    commit, position = msgspec.json.decode(sequence, type=tuple[str | None, str])
    return None if commit is None else int(commit), int(position)


def _converted(column: str, cell: msgspec.Raw, kind: FieldType) -> Any:
    """Converts a value to its form in JSON records of a topic."""
    text = bytes(cell)
    if text == _NULL:
        return None
    if kind.name == "json":
        return msgspec.Raw(msgspec.json.decode(text, type=str).encode())
    if kind.name == "date":
        day = msgspec.json.decode(text, type=int) + EPOCH_DAY
        if not _FIRST_DAY <= day <= _LAST_DAY:
            raise _Refused(f"expected days since 1970 of a year from 1 to 9999 at `{column}`: {_OTHER_TYPE}")
        return date.fromordinal(day).isoformat()
    if kind.name == "timestamp_ntz":
        micros = msgspec.json.decode(text, type=int)
        if not FIRST_US <= micros <= LAST_US:
            raise _Refused(f"expected microseconds since 1970 of a year from 1 to 9999 at `{column}`")
        # A whole second is none of a day that any row has but the first, which is the same as either.
        if micros % 1_000_000 and _FIRST_DAY <= micros + EPOCH_DAY <= _LAST_DAY:
            raise _Refused(f"expected microseconds, got what a day has, {micros}, at `{column}`: {_OTHER_TYPE}")
        return _instant(micros).removesuffix("Z")
    return cell


def _instant(micros: int) -> str:
    return (EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
