"""Decodes Kafka records of any encoding to typed events: the one decoder, for stream and replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twofold.infra.encodings.parsed_records import Parsed, Parser, with_tombstones
from twofold.infra.encodings.record_format import MARK, OPERATION
from twofold.infra.instants import FIRST_US, LAST_US
from twofold.quality.record_checks import broken
from twofold.tables.declare.encodings import find_encoding
from twofold.tables.declare.metadata_columns import (
    APPENDED_AT,
    LATE_BY_MS,
    LOG_OFFSET,
    OFFSET,
    PARTITION,
    REPLAYED,
    REST,
    TOMBSTONE,
)
from twofold.tables.declare.record_fields import Field
from twofold.tables.declare.topic import DeviceClock, Topic
from twofold.tables.refresh.events.field_columns import field_columns, undecodable
from twofold_archive.format.record_columns import HEADERS, HEADERS_TYPE, schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMESTAMP = pa.timestamp("us", tz="UTC")
PROVENANCE = [
    pa.field(PARTITION, pa.int32()),
    pa.field(OFFSET, pa.int64()),
    pa.field(APPENDED_AT, TIMESTAMP),
]
RAW_SCHEMA = schema(("partition", "offset", "timestamp", "key", "value"))
QUARANTINE_SCHEMA = pa.schema(
    [
        *PROVENANCE,
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(HEADERS, HEADERS_TYPE),
        pa.field("reasons", pa.list_(pa.string())),
    ]
)

_BESIDE = {name: f"_quarantined_{name}" for name in ("key", "value", HEADERS, "reasons")}
REASONS = _BESIDE["reasons"]
"""Of decoded rows, why they are rejected; null for those that are accepted."""

_LEFT_OUT = "left out when its offset was ingested, under other rules: today's accept it"


def raw_columns(topic: Topic) -> list[str]:
    """Returns the columns of a raw record that decoding needs; headers only if the topic reads them."""
    return [*RAW_SCHEMA.names, *([HEADERS] if topic.reads_headers else [])]


def events_schema(topic: Topic) -> pa.Schema:
    """Returns the schema of the topic's events: its fields, then position in the log and lateness.

    A corrected event time follows the fields that it is computed from.

    `_late_by_ms`: the topic's greatest event time committed before the micro-batch, minus the row's own, in
    milliseconds; negative when the row is ahead, null before anything was committed. A row without `_offset` is no
    record but a `heartbeat`. `_replayed`: the row came by a
    replay of the log; streams, whose watermark has passed, leave it to the batch.
    """
    fields = [pa.field(column, kind.arrow) for column, kind in topic.columns.items()]
    return pa.schema([*fields, *PROVENANCE, pa.field(LATE_BY_MS, pa.int64()), pa.field(REPLAYED, pa.bool_())])


def heartbeat(topic: Topic, event_ms: int, appended_ms: int, newest_ms: int | None = None) -> pa.Table:
    """Builds the one row, without an offset, that advances the event time of an idle topic.

    Args:
        event_ms: the event time that the topic has from now on, epoch milliseconds.
        appended_ms: the position of the log at that moment, epoch milliseconds.
        newest_ms: the greatest event time of the topic so far, epoch milliseconds; None when there is none.
    """
    schema = events_schema(topic)
    values = {
        topic.event_time: pa.array([event_ms * 1_000]).cast(TIMESTAMP),
        APPENDED_AT: pa.array([appended_ms * 1_000]).cast(TIMESTAMP),
        LATE_BY_MS: pa.array([None if newest_ms is None else newest_ms - event_ms], pa.int64()),
        REPLAYED: pa.array([False]),
    }
    return pa.table([values.get(f.name, pa.nulls(1, f.type)) for f in schema], schema=schema)


@dataclass(frozen=True)
class Decoded:
    """The records of a batch, split: every record is in exactly one of the two."""

    accepted: pa.Table
    rejected: pa.Table


@dataclass(frozen=True)
class Decoder:
    """Converts raw records of one topic to events, or to quarantined bytes with every reason."""

    topic: Topic
    replayed: bool = False

    def decode(self, raw: pa.Table | pa.RecordBatch, newest_ms: int | None) -> Decoded:
        """Splits `raw` into events and quarantine.

        Args:
            raw: columns of `raw_columns(topic)`; others are ignored.
            newest_ms: greatest event time of the topic committed so far, epoch milliseconds; None when there is none.

        Returns:
            Tables of `events_schema(topic)` and `QUARANTINE_SCHEMA`, both in the order of `raw`.
        """
        table = _raw_table(raw, self.topic)
        events, faults = self._split(table, newest_ms)
        return Decoded(events, self._quarantine(table, faults))

    def reject(self, raw: pa.Table | pa.RecordBatch) -> pa.Table:
        """Quarantines every record of `raw`, also those that the current rules accept.

        Returns:
            A table of `QUARANTINE_SCHEMA`, in the order of `raw`.
        """
        table = _raw_table(raw, self.topic)
        _, faults = self._split(table, None)
        return self._quarantine(table, {row: faults.get(row, [_LEFT_OUT]) for row in range(len(table))})

    def _split(self, table: pa.Table, newest_ms: int | None) -> tuple[pa.Table, dict[int, list[str]]]:
        """Returns the events, and the faults of each other row."""
        parsed = self._parser.parse(table)
        if self.topic.compacted:
            parsed = with_tombstones(parsed, table["value"])
        good, faults = parsed.rows, parsed.faults
        source = table if len(good) == len(table) else table.take(pa.array(good, pa.int64()))
        events = self._events(parsed, source, newest_ms)
        broken_by = self._broken(events, undecodable(self.topic, source))
        if broken_by:
            faults.update((good[row], reasons) for row, reasons in broken_by.items())
            events = events.take(pa.array([row for row in range(len(events)) if row not in broken_by], pa.int64()))
        return events, faults

    def _broken(self, events: pa.Table, found: dict[int, list[str]]) -> dict[int, list[str]]:
        """Returns by row the faults in values of records that could be parsed, after those found before."""
        # A tombstone or a mark has no values that could be wrong.
        removed = set()
        if self.topic.compacted:
            removed = set(pc.indices_nonzero(events[TOMBSTONE]).to_pylist())
        elif self.topic.has_marks:
            removed = set(pc.indices_nonzero(pc.equal(events[OPERATION], MARK)).to_pylist())
        for column, kind in self.topic.types.items():
            given = self.topic.schema[column]
            is_told = isinstance(given, Field) and given.source != "value"
            if not kind.nullable and not is_told and events[column].null_count:
                for row in set(pc.indices_nonzero(events[column].is_null()).to_pylist()) - removed:
                    found.setdefault(row, []).append(f"Expected `{kind.name}`, got `null` at `{column}`")
        for column, kind in self.topic.columns.items():
            if kind.name == "timestamp":
                for row in _beyond_calendar(events[column]):
                    found.setdefault(row, []).append(f"expected a year from 1 to 9999 in UTC at `{column}`")
        for row, ahead in self._ahead(events).items():
            found.setdefault(row, []).append(
                f"`{self.topic.event_time}` is {ahead} beyond the time at which the broker appended the record: "
                f"expected at most {self.topic.max_future_skew}"
            )
        reasons = broken(events, self.topic.checks)
        if reasons.null_count < len(reasons):
            for row in set(pc.indices_nonzero(reasons.is_valid()).to_pylist()) - removed:
                found.setdefault(row, []).extend(reasons[row].as_py())
        return found

    def _ahead(self, events: pa.Table) -> dict[int, timedelta]:
        """Returns the lead over the log of rows that are too far in the future."""
        bound_ms = self.topic.max_future_skew_ms
        if bound_ms is None:
            return {}
        event, appended = (events[c].cast(pa.int64()) for c in (self.topic.event_time, APPENDED_AT))
        ahead_us = pc.subtract(event, appended)
        beyond = pc.greater(ahead_us, bound_ms * 1_000)
        if not pc.any(beyond).as_py():
            return {}
        rows = pc.indices_nonzero(beyond)
        lengths = [timedelta(microseconds=us) for us in ahead_us.take(rows).to_pylist()]
        return dict(zip(rows.to_pylist(), lengths, strict=True))

    def _events(self, parsed: Parsed, source: pa.Table, newest_ms: int | None) -> pa.Table:
        columns, records = field_columns(self.topic, parsed.columns, source), len(source)
        appended = source["timestamp"].cast(TIMESTAMP)
        if self.topic.clock is not None:
            columns[self.topic.event_time] = _corrected(columns, appended, self.topic.clock)
        if self.topic.append_time is not None:
            columns[self.topic.append_time] = appended
        if REST in self.topic.columns:
            columns[REST] = pa.array(parsed.rests, pa.string())
        if self.topic.compacted:
            columns = self._with_deletions(columns, source)
        if newest_ms is None:
            late = pa.nulls(records, pa.int64())
        else:
            event_us = pc.fill_null(columns[self.topic.event_time].cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
            late = pa.array(newest_ms - event_us // 1_000)
        provenance = [source["partition"], source["offset"], appended]
        replayed = pa.repeat(self.replayed, records)
        return pa.table([*columns.values(), *provenance, late, replayed], schema=events_schema(self.topic))

    def _with_deletions(self, columns: dict[str, pa.Array], source: pa.Table) -> dict[str, pa.Array]:
        is_tombstone = source["value"].combine_chunks().is_null()
        appended = source["timestamp"].combine_chunks().cast(TIMESTAMP)
        defaults = [c for c, g in self.topic.schema.items() if isinstance(g, Field) and g.default is not None]
        nulled = {c: pc.if_else(is_tombstone, pa.scalar(None, columns[c].type), columns[c]) for c in defaults}
        return {
            **columns,
            **nulled,
            self.topic.event_time: pc.if_else(is_tombstone, appended, columns[self.topic.event_time]),
            LOG_OFFSET: source["offset"].combine_chunks(),
            TOMBSTONE: is_tombstone,
        }

    def _quarantine(self, table: pa.Table, faults: dict[int, list[str]]) -> pa.Table:
        rows = sorted(faults)
        bad = table.take(pa.array(rows, pa.int64()))
        return pa.table(
            [
                bad["partition"],
                bad["offset"],
                bad["timestamp"].cast(TIMESTAMP),
                bad["key"],
                bad["value"],
                _headers(bad) if self.topic.reads_headers else pa.nulls(len(bad), HEADERS_TYPE),
                pa.array([faults[row] for row in rows], pa.list_(pa.string())),
            ],
            schema=QUARANTINE_SCHEMA,
        )

    @cached_property
    def _parser(self) -> Parser:
        return find_encoding(self.topic.encoding).parser_class(self.topic.record_format)

    def __getstate__(self) -> dict[str, Any]:
        return {"topic": self.topic, "replayed": self.replayed}  # a worker builds its own parser

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def for_workers(raw: DataFrame, topic: Topic) -> DataFrame:
    """Selects the columns of `raw_columns(topic)`; null headers become empty lists, which `Decoder` reads as none.

    Spark asks Arrow at each row how large the batch is, and Arrow then goes through all rows since the last list that
    is not null: of a batch of 20,000 records without headers that took 20 us a record.
    """
    from pyspark.sql import functions as F

    selected = raw.select(*raw_columns(topic))
    return selected.withColumn(HEADERS, F.expr(f"coalesce({HEADERS}, array())")) if topic.reads_headers else selected


def decode_frame(raw: DataFrame, topic: Topic, newest_ms: int | None, *, replayed: bool = False) -> DataFrame:
    """Decodes `raw` records (columns of `raw_columns(topic)`) in Spark's Python workers.

    Returns:
        Columns of `events_schema(topic)`, then those that only quarantine has, under names that no topic has:
        which `accepted` and `rejected` separate.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    decoder = Decoder(topic, replayed)
    joined = pa.schema([*events_schema(topic), *(QUARANTINE_SCHEMA.field(c).with_name(n) for c, n in _BESIDE.items())])

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            split = decoder.decode(batch, newest_ms)
            names = [_BESIDE.get(name, name) for name in QUARANTINE_SCHEMA.names]
            for part in (split.accepted, split.rejected.rename_columns(names)):
                if len(part):
                    yield from _widen(part, joined).to_batches()

    return for_workers(raw, topic).mapInArrow(decoded, from_arrow_schema(joined))


def reject_frame(raw: DataFrame, topic: Topic) -> DataFrame:
    """Quarantines all `raw` records (columns of `raw_columns(topic)`) in Spark's Python workers."""
    from pyspark.sql.pandas.types import from_arrow_schema

    decoder = Decoder(topic)

    def quarantined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from decoder.reject(batch).to_batches()

    return for_workers(raw, topic).mapInArrow(quarantined, from_arrow_schema(QUARANTINE_SCHEMA))


def accepted(decoded: DataFrame, topic: Topic) -> DataFrame:
    """Selects the events from a result of `decode_frame`."""
    return decoded.where(f"{REASONS} IS NULL").select(*events_schema(topic).names)


def rejected(decoded: DataFrame) -> DataFrame:
    """Selects the quarantine from a result of `decode_frame`."""
    columns = [decoded[_BESIDE.get(name, name)].alias(name) for name in QUARANTINE_SCHEMA.names]
    return decoded.where(f"{REASONS} IS NOT NULL").select(*columns)


def _raw_table(raw: pa.Table | pa.RecordBatch, topic: Topic) -> pa.Table:
    table = pa.Table.from_batches([raw]) if isinstance(raw, pa.RecordBatch) else raw
    return table.select(raw_columns(topic)).combine_chunks()


def _headers(bad: pa.Table) -> pa.ChunkedArray:
    """Returns headers as stored in quarantine: an empty list becomes null."""
    return pc.if_else(pc.greater(pc.list_value_length(bad[HEADERS]), 0), bad[HEADERS], None)


def _corrected(columns: Mapping[str, pa.Array], appended: pa.ChunkedArray, clock: DeviceClock) -> pa.Array:
    """Corrects the event time by the difference between device clock and receiver clock at sending."""

    def micros(times: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
        return pc.fill_null(times.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    received = micros(appended if clock.received is None else columns[clock.received])
    bound_us = clock.bound_ms * 1_000
    off_us = np.clip(received - micros(columns[clock.sent]), -bound_us, bound_us)
    return pa.array(micros(columns[clock.event]) + off_us).cast(TIMESTAMP)


def _beyond_calendar(column: pa.ChunkedArray) -> list[int]:
    """Returns rows with a time whose offset moves it out of the years that a date can have."""
    micros = column.combine_chunks().cast(pa.int64())
    beyond = pc.or_(pc.less(micros, FIRST_US), pc.greater(micros, LAST_US))
    return list(pc.indices_nonzero(pc.fill_null(beyond, False)).to_pylist())


def _widen(part: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [part[f.name] if f.name in part.column_names else pa.nulls(len(part), f.type) for f in schema]
    return pa.table(columns, schema=schema)
