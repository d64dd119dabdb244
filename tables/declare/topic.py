"""Topics as they are declared; each parameter is checked when the file is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal

from twofold.infra.duration import parse_duration
from twofold.infra.encodings.column_types import FieldType, parse_type
from twofold.infra.encodings.record_format import MARK, OPERATION, RecordFormat
from twofold.infra.encodings.schema_files import SchemaFiles, read_schemas
from twofold.infra.errors import BadDeclaration
from twofold.quality.rules import RECORD_RULES, Rule
from twofold.tables.declare.encodings import find_encoding
from twofold.tables.declare.metadata_columns import LOG_OFFSET, OFFSET, REST, TOMBSTONE
from twofold.tables.declare.parameter_checks import (
    duration_checks,
    require_columns,
    require_list,
    require_names,
    require_rules,
    set_fields,
)
from twofold.tables.declare.record_fields import Field, record_types, require_fields
from twofold.tables.declare.records.cover import Cover, CoveredType, find_cover
from twofold.tables.declare.records.origin import PRODUCED, Origin
from twofold.tables.declare.refusals.mistake_list import found_by, require_none
from twofold_algebra.sql.names import SPARK

_TOPIC_DURATIONS = ("local_retention", "max_future_skew", "idle_timeout")


@dataclass(frozen=True, kw_only=True)
class DeviceClock:
    """Corrects the times of a device without a trusted clock by the receiver's clock.

    A device stamps a fact, and stamps it again when it sends it; the receiver knows when it arrived. The event time is
    then `event + (received - sent)`: what the device's clock is off by drops out, and the way there counts as no time.

    Args:
        event: the `timestamp` column that says when the fact happened, by the device's clock.
        sent: the `timestamp` column that says when the record was sent, by the device's clock.
        received: the `timestamp` column that says when it arrived, by a trusted clock; None: the time at which the
            broker appended the record.
        bound: a time is moved by no more than this, forward or back.
    """

    event: str
    sent: str
    received: str | None = None
    bound: str = "1 day"

    def __post_init__(self) -> None:
        if not self.bound_ms:
            raise BadDeclaration(f"bound={self.bound!r}: expected more than nothing.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the schema that it reads."""
        return tuple(column for column in (self.event, self.sent, self.received) if column)

    @property
    def bound_ms(self) -> int:
        return parse_duration(self.bound, "bound")


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A Kafka topic: one partitioned log of records, and the `events` table that they become.

    Args:
        encoding: what records are: `json`, or `avro` or `protobuf`, whose schemas are files below `schemas`, or
            `debezium`, changes of a database, as `changes_of` declares them, or `module:Class`, a parser of one's own.
        subject: of an encoding with schemas, the folder below `schemas` that holds those of the topic: of a registry
            the subject, mostly the topic's name with `-value` behind it.
        origin: how records come to the topic, as `changes_of`, `outbox_of` and `from_webhook` give it.
        schema: column -> type: `string`, `boolean`, `int`, `long`, `double`, `decimal(p,s)`, `date`, `timestamp` (RFC
            3339 with an offset), `timestamp_ntz` (without one), `binary` (base64), `json` (any value, its text kept
            exact), `array<T>`, `struct<name: T, ...>`, `map<string,T>`; a trailing `?` allows null or absence. In place
            of a type, `field("actor.login", "string", default="")` takes a field by its path, `key("string")` the
            record's key, `header("trace-id", "string?")` a header. Of an encoding with schemas it may be
            left out, for all fields of the newest.
        unknown_fields: of fields, at any depth, that the schema does not name: `refuse` quarantines the record,
            `ignore` leaves them out, `keep` puts them into the column `_rest` as JSON, under the names that lead to
            them.
        event_time: the `timestamp` column that says when the fact happened; with `clock`, the name of a column that the
            decoder adds.
        clock: computes the event time from these columns, where the devices' clocks are not trusted.
        report_time: the `timestamp` column that says when the fact was reported, for those who ask how late that was.
        append_time: the name of a column that the decoder adds: when the broker appended the record. It is processing
            time that every recomputation repeats; of a record sent twice the first counts.
        max_future_skew: a record whose event time is later than the broker's append time by more than this is
            quarantined, so that no clock that runs ahead moves the watermark; None: any future is believed.
        idle_timeout: after this long without a record, while other topics of the domain have some, the topic's
            watermark follows the slowest of theirs; None: never, so that tables wait for the topic.
        message_key: the column that producers use as the record key: what must stay in order shares it.
        dedup_keys: two records that agree in these columns and in the event time, with `clock` in the device's own, are
            one record, sent twice. Of a compacted topic none: every record counts.
        checks: what a good record is; a record that breaks any is quarantined.
        partitions: of the topic; the order of records is kept within one.
        max_bytes: a longer value is quarantined without being decoded.
        compacted: the broker keeps of each key the newest record alone, without an archive, and a record without a
            value is a tombstone: an event dated by its append, whose columns but the key and headers are null. Events
            have two more columns: `is_tombstone`, and `log_offset`, which orders the records of a key. `message_key`
            is a column declared by `key(...)`.
        tiered: closed segments are copied to the archive and kept for ever; None: unless the topic is compacted.
        segment_bytes: size at which a segment is closed, at least 1 MiB; smaller segments reach the archive sooner.
        local_retention: how long the broker keeps what the archive has too.
    """

    event_time: str
    message_key: str
    dedup_keys: Sequence[str] = ()
    schema: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "json"
    subject: str | None = None
    origin: Origin = PRODUCED
    clock: DeviceClock | None = None
    report_time: str | None = None
    append_time: str | None = None
    max_future_skew: str | None = "1 hour"
    idle_timeout: str | None = None
    checks: Sequence[Rule] = ()
    partitions: int = 3
    unknown_fields: Literal["refuse", "ignore", "keep"] = "refuse"
    max_bytes: int = 65_536
    compacted: bool = False
    tiered: bool | None = None
    segment_bytes: int = 16 * 1024 * 1024
    local_retention: str = "1 day"

    domain: str = ""
    name: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        require_list("dedup_keys", self.dedup_keys)
        set_fields(self, schema=dict(self.schema), dedup_keys=tuple(self.dedup_keys), checks=tuple(self.checks))
        set_fields(self, tiered=not self.compacted if self.tiered is None else self.tiered)
        mistakes = found_by(*(partial(parse_type, column, text) for column, text in self.schema.items()))
        mistakes = mistakes or found_by(lambda: require_fields(self.schema), self._complete_schema)
        if not mistakes:
            mistakes = found_by(
                self._require_event_time,
                self._require_report_time,
                self._require_append_time,
                lambda: require_names([*self.types, *self._added_columns]),
                lambda: self._require_single_values("message_key", [self.message_key]),
                self._require_compacted if self.compacted else self._require_dedup_keys,
                lambda: require_rules(self.checks, allowed=RECORD_RULES, columns=self.columns, of="a topic"),
            )
        require_none([*mistakes, *found_by(self._require_options, *duration_checks(self, _TOPIC_DURATIONS))])

    @property
    def _added_columns(self) -> list[str]:
        added = [self.event_time] if self.clock else []
        return [
            *added,
            *([self.append_time] if self.append_time else []),
            *(self._log_columns if self.compacted else ()),
        ]

    @property
    def largest_record(self) -> int:
        """How many bytes of one record the broker takes: one that is longer than `max_bytes` is to reach quarantine."""
        largest = self.origin.most_bytes or max(1 << 20, 2 * self.max_bytes)
        return min(self.segment_bytes, largest)

    @property
    def row_condition(self) -> str:
        """Whether table functions see an event, in SQL; they see neither heartbeats nor marks."""
        of_change = f" AND {OPERATION} <> {SPARK.literal(MARK)}" if self.has_marks else ""
        return f"{OFFSET} IS NOT NULL{of_change}"

    @property
    def has_marks(self) -> bool:
        """Whether some events are no changes of rows, but places in the log of the captured database."""
        return find_encoding(self.encoding).of_changes

    @property
    def _log_columns(self) -> dict[str, FieldType]:
        return {LOG_OFFSET: FieldType(name="long"), TOMBSTONE: FieldType(name="boolean")}

    def _require_dedup_keys(self) -> None:
        self._require_single_values("dedup_keys", self.dedup_keys)

    def _require_compacted(self) -> None:
        mistakes = []
        given = self.schema.get(self.message_key)
        if not isinstance(given, Field) or given.source != "key" or given.endswith("?"):
            mistakes.append(
                f"message_key={self.message_key!r} is declared {given!r}; expected key(...) without '?', since the "
                "broker compacts by the record's key, which is all that a tombstone has."
            )
        if self.tiered:
            mistakes.append("tiered=True: Kafka keeps no archive of a compacted topic; leave tiered out.")
        if self.has_marks:
            mistakes.append(f"encoding={self.encoding!r}: changes of a database say themselves what was deleted.")
        if self.dedup_keys:
            mistakes.append(
                f"dedup_keys={list(self.dedup_keys)}: expected none, since every record counts: one that says again "
                "what an earlier one said replaces those between."
            )
        for column, kind in self.types.items():
            given = self.schema[column]
            if isinstance(given, Field) and given.source == "header" and not kind.nullable:
                mistakes.append(f"{column}={given!r}: expected '{kind.name}?', since a tombstone may lack the header.")
        for column in self._log_columns.keys() & {*self.schema, self.event_time, self.append_time}:
            mistakes.append(f"{column} is a column of every compacted topic; expected another name.")
        require_none([BadDeclaration(message) for message in mistakes])

    def _require_append_time(self) -> None:
        if self.append_time is not None and self.append_time in (
            *self.schema,
            *([self.event_time] if self.clock else []),
        ):
            raise BadDeclaration(
                f"append_time={self.append_time!r} is a column already; expected a name for a new one."
            )

    def _require_single_values(self, what: str, names: Sequence[str]) -> None:
        if not names:
            raise BadDeclaration(f"{what} is empty.", hint="Name the columns in which a repeated record agrees.")
        require_columns(what, names, self.types)
        nested = [name for name in names if self.types[name].name in ("array", "map", "struct", "json")]
        if nested:
            raise BadDeclaration(
                f"{what} names {nested[0]}, which is declared {self.schema[nested[0]]!r}; expected single values.",
                hint="Give the field within it that identifies records a column of its own.",
            )

    def _require_options(self) -> None:
        mistakes = []
        if self.unknown_fields not in ("refuse", "ignore", "keep"):
            mistakes.append(f"unknown_fields={self.unknown_fields!r}: expected 'refuse', 'ignore' or 'keep'.")
        for name, least in {"partitions": 1, "max_bytes": 1, "segment_bytes": 1 << 20}.items():
            if getattr(self, name) < least:
                mistakes.append(f"{name}={getattr(self, name)}: expected at least {least}.")
        if self.max_bytes > self.segment_bytes:
            mistakes.append(f"max_bytes={self.max_bytes}: expected at most segment_bytes={self.segment_bytes}.")
        if self.idle_timeout is not None and not found_by(lambda: self.idle_timeout_ms) and not self.idle_timeout_ms:
            mistakes.append(f"idle_timeout={self.idle_timeout!r}: expected more than nothing.")
        require_none([BadDeclaration(message) for message in mistakes])

    def _complete_schema(self) -> None:
        """Take the columns from the newest schema, or hold those that are declared against it."""
        encoding = find_encoding(self.encoding)
        if not encoding.outbox and encoding.of_changes != (self.captures is not None):
            raise BadDeclaration(
                f"encoding={self.encoding!r} with captures={self.captures!r}: expected both of a captured table.",
                hint="Declare it by changes_of(...), an outbox by outbox_of(...).",
            )
        if not encoding.schema_suffix:
            if self.subject is not None:
                raise BadDeclaration(f"subject={self.subject!r}: {self.encoding} records have no such schema.")
            return
        if self.subject is None:
            raise BadDeclaration(
                f"encoding={self.encoding!r} needs subject: the folder below schemas that holds the schemas.",
                hint='Write subject="<the topic\'s name>-value", as registries name it.',
            )
        from twofold.tables.declare.topic_schemas import schema_columns

        set_fields(self, schema=schema_columns(self.schema_files, encoding, self.schema, [self.event_time]))

    def _require_event_time(self) -> None:
        if self.clock is None:
            self._require_instant("event_time", self.event_time)
        elif not isinstance(self.clock, DeviceClock):
            raise BadDeclaration(f"clock={self.clock!r}: expected a DeviceClock.")
        elif self.event_time in self.schema:
            raise BadDeclaration(
                f"event_time={self.event_time!r} is a column of the schema; with a clock it is the corrected time, "
                "which no record holds.",
                hint="Give it a name of its own; the column of the device goes to clock.event.",
            )
        else:
            for column in self.clock.columns:
                self._require_instant("clock", column)

    def _require_report_time(self) -> None:
        if self.report_time is not None:
            self._require_instant("report_time", self.report_time, nullable=True)

    def _require_instant(self, what: str, column: str, *, nullable: bool = False) -> None:
        types = self.types
        require_columns(what, [column], types)
        kind = types[column]
        if kind.name != "timestamp" or (kind.nullable and not nullable):
            raise BadDeclaration(
                f"{what}={column!r} is declared {self.schema[column]!r}; expected 'timestamp'"
                + ("." if nullable else ", which cannot be null.")
            )

    @property
    def reads_headers(self) -> bool:
        """Whether a record's headers say what it is, or are among its columns."""
        fields = [given for given in self.schema.values() if isinstance(given, Field)]
        return self.has_schema_files or any(given.source == "header" for given in fields)

    @cached_property
    def record_types(self) -> dict[str, FieldType]:
        """Field of a record, as its columns take it apart -> type."""
        return record_types(self.schema)

    @cached_property
    def schema_files(self) -> SchemaFiles:
        """The schemas that are files, of an encoding with schemas."""
        return read_schemas(self.subject or "", find_encoding(self.encoding).schema_suffix)

    @property
    def has_schema_files(self) -> bool:
        """Whether a record needs a schema, which is a file."""
        return bool(find_encoding(self.encoding).schema_suffix)

    @property
    def record_format(self) -> RecordFormat:
        """The format of the records, as parsers need it."""
        return RecordFormat(
            topic=self.full_name,
            types=self.record_types,
            unknown_fields=self.unknown_fields,
            max_bytes=self.max_bytes,
            key=self.dedup_keys,
            table=self.captures or "",
            schema_files=self.schema_files if self.has_schema_files else None,
        )

    @property
    def types(self) -> dict[str, FieldType]:
        """Column of a record -> parsed type, in declared order."""
        return {column: parse_type(column, text) for column, text in self.schema.items()}

    @property
    def columns(self) -> dict[str, FieldType]:
        """Column of an event -> its type.

        Those of a record, then the corrected event time where there is a clock, then the time at which the broker
        appended it where that is declared, then `_rest` where it is kept, then `log_offset` and `is_tombstone` of a
        compacted topic.
        """
        added = {} if self.clock is None else {self.event_time: FieldType(name="timestamp")}
        if self.append_time is not None:
            added[self.append_time] = FieldType(name="timestamp")
        if self.unknown_fields == "keep":
            added[REST] = FieldType(name="json", nullable=True)
        if self.compacted:
            added |= self._log_columns
        return {**self.types, **added}

    @property
    def same_record(self) -> tuple[str, ...]:
        """The columns in which a record that was sent twice agrees with itself.

        With a clock that is the device's time of the event: the corrected one depends on how long each copy travelled.
        Of a compacted topic no two records agree.
        """
        if self.compacted:
            return (self.message_key, LOG_OFFSET)
        moment = self.event_time if self.clock is None else self.clock.event
        return tuple(dict.fromkeys([*self.dedup_keys, moment]))

    @property
    def captures(self) -> str | None:
        """The table of a captured database that records are of."""
        return self.origin.table

    @property
    def covered(self) -> dict[str, CoveredType]:
        """The columns with values that are covered before the log has them, or that are computed of some then."""
        return {column: given for column, given in self.schema.items() if isinstance(given, CoveredType)}

    @property
    def cover(self) -> Cover | None:
        """What covers them; None: nothing is covered."""
        return find_cover()(self) if self.covered else None

    @property
    def full_name(self) -> str:
        """`domain.name`: the name of the topic on the broker, and of its events table."""
        return f"{self.domain}.{self.name}"

    @property
    def local_retention_ms(self) -> int:
        return parse_duration(self.local_retention, "local_retention")

    @property
    def max_future_skew_ms(self) -> int | None:
        return None if self.max_future_skew is None else parse_duration(self.max_future_skew, "max_future_skew")

    @property
    def idle_timeout_ms(self) -> int | None:
        return None if self.idle_timeout is None else parse_duration(self.idle_timeout, "idle_timeout")
