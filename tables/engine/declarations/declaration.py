"""Topics and tables as they are declared; each parameter is checked when its file is loaded."""

from __future__ import annotations

import difflib
import inspect
import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from infra.duration import parse_duration
from infra.errors import BadDeclaration
from quality.rules import RECORD_RULES, Rule
from tables.engine.declarations.column_types import FieldType, parse_type
from tables.engine.declarations.mistake_list import found_by, require_none
from tables.engine.declarations.record_fields import Field, record_types, require_fields
from tables.engine.events.metadata_columns import LOG_OFFSET, MARK, OFFSET, OPERATION, REST, TOMBSTONE
from tables.engine.schemas.schema_files import SUFFIXES, SchemaFiles, read_schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Derive = Callable[..., DataFrame]

NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
BOUND = frozenset({"domain", "name", "description", "several", "inferred", "lineage"})
"""Fields that no declaration gives: its folder, its name, the first line of the file's docstring, what is inferred."""
COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
NAMING = (
    "primary_key",
    "recompute_by",
    "sequence_by",
    "event_time",
    "ends_at",
    "closes_at",
    "tolerances",
    "lineage_columns",
)
"""The parameters of a table that name columns of its result."""
KEY_OF_ONE_ROW = (
    "Write primary_key=[...], the columns that identify a row. A table of one row has a constant one: "
    '.withColumn("id", F.lit(1)), primary_key=["id"], recompute_by=[].'
)
_TOPIC_DURATIONS = ("local_retention", "max_future_skew", "idle_timeout")
_TABLE_DURATIONS = ("watermark", "depends_within", "trigger_interval", "freshness")
_DESCRIBED = re.compile(r"([A-Za-z][A-Za-z0-9_]*): (\S.*)")


class Strategy(StrEnum):
    """How the stream maintains a table."""

    APPEND = "append"
    """Every input row becomes its own rows at once."""
    LATEST = "latest"
    """Of each key the greatest row is kept."""
    STATEFUL = "stateful"
    """Rows stay open for a time, in which more input rows revise them."""
    TOUCHED = "touched"
    """Input rows can change, or output rows depend on several: what changed rows touch is computed again."""

    @property
    def removes_repeats(self) -> bool:
        """Whether records that agree in their identity must count once: several of them make one row."""
        return self in (Strategy.STATEFUL, Strategy.TOUCHED)

    @property
    def has_state(self) -> bool:
        return self is Strategy.STATEFUL

    @property
    def follows_changes(self) -> bool:
        """Whether the table is refreshed by the changes of its inputs, without a streaming query."""
        return self is Strategy.TOUCHED


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
            `debezium`, changes of a database, as `changes_of` declares them.
        subject: of an encoding with schemas, the folder below `schemas` that holds those of the topic: of a registry
            the subject, mostly the topic's name with `-value` behind it.
        captures: the table of the captured database whose changes the records are, as `changes_of` gives it, or, with
            `json`, whose rows hold the records, as `outbox_of` gives it.
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
    encoding: Literal["json", "avro", "protobuf", "debezium"] = "json"
    subject: str | None = None
    captures: str | None = None
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
        _require_list("dedup_keys", self.dedup_keys)
        _set(self, schema=dict(self.schema), dedup_keys=tuple(self.dedup_keys), checks=tuple(self.checks))
        _set(self, tiered=not self.compacted if self.tiered is None else self.tiered)
        mistakes = found_by(*(partial(parse_type, column, text) for column, text in self.schema.items()))
        mistakes = mistakes or found_by(lambda: require_fields(self.schema), self._complete_schema)
        if not mistakes:
            mistakes = found_by(
                self._require_event_time,
                self._require_report_time,
                self._require_append_time,
                lambda: _require_names([*self.types, *self._added_columns]),
                lambda: self._require_single_values("message_key", [self.message_key]),
                self._require_compacted if self.compacted else self._require_dedup_keys,
                lambda: _require_rules(self.checks, allowed=RECORD_RULES, columns=self.columns, of="a topic"),
            )
        require_none([*mistakes, *found_by(self._require_options, *_duration_checks(self, _TOPIC_DURATIONS))])

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
        """How many bytes of one record the broker takes: one that is longer than `max_bytes` is to reach quarantine.

        Of a captured table as many as fit into a segment: a row that the broker refuses stops the capture.
        """
        wanted = 32 << 20 if self.captures else max(1 << 20, 2 * self.max_bytes)
        return min(self.segment_bytes, wanted)

    @property
    def row_condition(self) -> str:
        """Of events, in SQL: whether table functions see one, which no heartbeat and no mark is for."""
        of_change = f" AND {OPERATION} <> '{MARK}'" if self.encoding == "debezium" else ""
        return f"{OFFSET} IS NOT NULL{of_change}"

    @property
    def _log_columns(self) -> dict[str, FieldType]:
        return {LOG_OFFSET: FieldType(name="long"), TOMBSTONE: FieldType(name="boolean")}

    def _require_dedup_keys(self) -> None:
        self._require_single_values("dedup_keys", self.dedup_keys)

    def _require_compacted(self) -> None:
        found = []
        given = self.schema.get(self.message_key)
        if not isinstance(given, Field) or given.source != "key" or given.endswith("?"):
            found.append(
                f"message_key={self.message_key!r} is declared {given!r}; expected key(...) without '?', since the "
                "broker compacts by the record's key, which is all that a tombstone has."
            )
        if self.tiered:
            found.append("tiered=True: Kafka keeps no archive of a compacted topic; leave tiered out.")
        if self.encoding == "debezium":
            found.append("encoding='debezium': changes of a database say themselves what was deleted.")
        if self.dedup_keys:
            found.append(
                f"dedup_keys={list(self.dedup_keys)}: expected none, since every record counts: one that says again "
                "what an earlier one said replaces those between."
            )
        for column, kind in self.types.items():
            given = self.schema[column]
            if isinstance(given, Field) and given.source == "header" and not kind.nullable:
                found.append(f"{column}={given!r}: expected '{kind.name}?', since a tombstone may lack the header.")
        for column in self._log_columns.keys() & {*self.schema, self.event_time, self.append_time}:
            found.append(f"{column} is a column of every compacted topic; expected another name.")
        require_none([BadDeclaration(message) for message in found])

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
        _require_columns(what, names, self.types)
        nested = [name for name in names if self.types[name].name in ("array", "map", "struct", "json")]
        if nested:
            raise BadDeclaration(
                f"{what} names {nested[0]}, which is declared {self.schema[nested[0]]!r}; expected single values.",
                hint="Give the field within it that identifies records a column of its own.",
            )

    def _require_options(self) -> None:
        found = []
        if self.unknown_fields not in ("refuse", "ignore", "keep"):
            found.append(f"unknown_fields={self.unknown_fields!r}: expected 'refuse', 'ignore' or 'keep'.")
        for name, least in {"partitions": 1, "max_bytes": 1, "segment_bytes": 1 << 20}.items():
            if getattr(self, name) < least:
                found.append(f"{name}={getattr(self, name)}: expected at least {least}.")
        if self.max_bytes > self.segment_bytes:
            found.append(f"max_bytes={self.max_bytes}: expected at most segment_bytes={self.segment_bytes}.")
        if self.idle_timeout is not None and not found_by(lambda: self.idle_timeout_ms) and not self.idle_timeout_ms:
            found.append(f"idle_timeout={self.idle_timeout!r}: expected more than nothing.")
        require_none([BadDeclaration(message) for message in found])

    def _complete_schema(self) -> None:
        """Take the columns from the newest schema, or hold those that are declared against it."""
        if self.encoding not in ("json", "debezium", *SUFFIXES):
            raise BadDeclaration(f"encoding={self.encoding!r}: expected 'json', {', '.join(map(repr, SUFFIXES))}.")
        if self.encoding != "json" and (self.encoding == "debezium") != (self.captures is not None):
            raise BadDeclaration(
                f"encoding={self.encoding!r} with captures={self.captures!r}: expected both of a captured table.",
                hint="Declare it by changes_of(...), an outbox by outbox_of(...).",
            )
        if self.encoding not in SUFFIXES:
            if self.subject is not None:
                raise BadDeclaration(f"subject={self.subject!r}: JSON records have no schema outside of them.")
            return
        if self.subject is None:
            raise BadDeclaration(
                f"encoding={self.encoding!r} needs subject: the folder below schemas that holds the schemas.",
                hint='Write subject="<the topic\'s name>-value", as registries name it.',
            )
        from tables.engine.schemas.schema_columns import schema_columns

        _set(self, schema=schema_columns(self.schema_files, self.encoding, self.schema, [self.event_time]))

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
        _require_columns(what, [column], types)
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
        return self.encoding in SUFFIXES or any(given.source == "header" for given in fields)

    @cached_property
    def record_types(self) -> dict[str, FieldType]:
        """Field of a record, as its columns take it apart -> type."""
        return record_types(self.schema)

    @cached_property
    def schema_files(self) -> SchemaFiles:
        """The schemas that are files, of an encoding with schemas."""
        return read_schemas(self.subject or "", self.encoding)

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


@dataclass(frozen=True, kw_only=True)
class Table:
    """A Delta table: a pure function of topics and other tables. A file declares it by `@table`.

    Args:
        primary_key: columns that identify an output row.
        event_time: the output column that dates a row (`timestamp` or `date`); None for a row that lives for ever.
        ends_at: the output column where the time that a row covers ends, as that of a session: a change within that
            time, or less than `depends_within` from it, has the whole row computed again.
        watermark: how long the stream waits for stragglers before it closes a row.
        closes_at: the output column that says when a row is final on the stream, at most `depends_within` after its
            `event_time`; needed by windows and joins.
        sequence_by: keep of each key only the row that is greatest here, compared left to right, nulls lowest. With
            `closes_at`, of the final rows that a join gives for one key.
        tolerances: column -> the relative error that it may have: a sketch, or an estimate by one. Rows that differ in
            nothing else, and here by no more than both errors together, are the same; `float("inf")` for the sketch.
            Doubles that are not named may differ by what another order of addition rounds; 0 for one that must not.
        lineage_columns: columns that name the log records which made a row. With it, each topic that the function reads
            has a column `record` too, a struct of `topic`, `partition` and `offset`. Rows that differ in nothing else
            are the same: a record that was sent twice has two offsets, and a row names one of them.
        recompute_by: an output row depends only on input rows with the same value in these columns ...
        scope_columns: input -> column of `recompute_by` -> what that input has for it, where that is no column of that
            name: another column, a field of one, or an expression in Spark's SQL: `{"person": {"seller": "id"}}`; None:
            nothing, so that each of its changes matters to all values.
        depends_within: ... and whose event time is within this distance of its own; None: however far. With it, and
            without `closes_at`, each micro-batch of the stream recomputes what its rows touch.
        late: `correct`: late records end in corrections; `drop`: they are counted and listed only.
        trigger_interval: how often the stream looks for new input, "2 seconds"; None: the setting `table_trigger_ms`.
            Longer intervals leave the machine to tables that must be fresher.
        checks: what a good row is; the batch publishes no row that breaks one.
        owner: who answers for the table: a team, an address.
        tags: words by which Airflow's UI finds the table's tasks, and `show` lists them.
        freshness: rows are to be visible this long after the broker had them; the stream's watch fails when they are
            not. None: within 15 minutes.

    Attributes:
        derive: the function: DataFrames in, one DataFrame out; its parameters name its inputs, topics or tables of the
            domain.
        several: how a row can depend on several rows of an input, in words; empty: it does not, or that is not known.
        inferred: the parameters that the declaration leaves to what its function does.
        lineage: column -> the columns of inputs that its value is made of, `input.column`, as far as that is known.
    """

    derive: Derive
    primary_key: Sequence[str]
    recompute_by: Sequence[str]
    event_time: str | None = None
    watermark: str = "0 seconds"
    closes_at: str | None = None
    sequence_by: Sequence[str] = ()
    ends_at: str | None = None
    scope_columns: Mapping[str, Mapping[str, str | None]] | None = None
    tolerances: Mapping[str, float] | None = None
    lineage_columns: Sequence[str] | None = None
    depends_within: str | None = None
    late: Literal["correct", "drop"] = "correct"
    trigger_interval: str | None = None
    checks: Sequence[Rule] = ()
    owner: str | None = None
    tags: Sequence[str] = ()
    freshness: str | None = None

    domain: str = ""
    name: str = ""
    description: str = ""
    several: str = ""
    inferred: tuple[str, ...] = ()
    lineage: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("primary_key", "recompute_by", "sequence_by", "tags"):
            _require_list(name, getattr(self, name))
            _set(self, **{name: tuple(getattr(self, name))})
        _set(self, checks=tuple(self.checks))
        if not callable(self.derive):
            raise BadDeclaration(f"derive={self.derive!r}: expected a function from DataFrames to a DataFrame.")
        if not self.inputs:
            raise BadDeclaration(
                f"{self.derive.__name__} has no parameters.",
                hint="Its parameters name the topics and tables it reads.",
            )
        if not self.primary_key:
            raise BadDeclaration("primary_key is empty.", hint=KEY_OF_ONE_ROW)
        _require_late(self.late)
        if self.closes_at and self.sequence_by and self.sequence_by[0] != self.event_time:
            raise BadDeclaration(
                f"sequence_by begins with {self.sequence_by[0]!r} with closes_at; "
                f"expected event_time={self.event_time!r}.",
                hint="Of several rows of one key the later one must also be the one that closes later.",
            )
        if self.closes_at and not (self.event_time and self.depends_within):
            raise BadDeclaration(
                "closes_at needs event_time and depends_within.",
                hint="By them reconcile knows which rows a late record can change.",
            )
        if self.ends_at and (self.closes_at or not (self.event_time and self.depends_within)):
            raise BadDeclaration(
                "ends_at needs event_time and depends_within, and no closes_at.",
                hint="A row covers the time from event_time to ends_at; for sessions, depends_within is their gap.",
            )
        for source, columns in (self.scope_columns or {}).items():
            if source not in self.inputs or not set(columns) <= set(self.recompute_by):
                raise BadDeclaration(
                    f"scope_columns={self.scope_columns}: expected inputs, and columns of recompute_by.",
                    hint=f"The inputs are {', '.join(self.inputs)}; recompute_by is {list(self.recompute_by)}.",
                )
        if self.lineage_columns is not None:
            _require_list("lineage_columns", self.lineage_columns)
            _set(self, lineage_columns=tuple(self.lineage_columns))
        errors = {**dict(self.tolerances or {}), **dict.fromkeys(self.lineage_columns or (), float("inf"))}
        _set(self, tolerances=errors)
        wrong = [c for c, error in errors.items() if c in self.primary_key or not error >= 0]
        if wrong:
            raise BadDeclaration(
                f"tolerances or lineage_columns name {', '.join(wrong)}: expected columns outside of primary_key and "
                'relative errors of at least 0, like {"planes": 0.02}.'
            )
        if self.depends_within and not self.event_time:
            raise BadDeclaration("depends_within needs event_time: the distance is measured from it.")
        require_none(found_by(*_duration_checks(self, _TABLE_DURATIONS)))
        _require_rules(self.checks, allowed=None, columns=None, of="a table")

    @property
    def columns(self) -> dict[str, str]:
        """Output column -> what it is, for those that the function's docstring describes by a line `name: text`."""
        return described_columns(self.derive)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the topics and tables that `derive` reads, in the order of its parameters."""
        return tuple(inspect.signature(self.derive).parameters)

    @property
    def full_name(self) -> str:
        """`domain.name`."""
        return f"{self.domain}.{self.name}"

    @property
    def statistics(self) -> list[str]:
        """The columns by which files of the table are chosen: their least and greatest values are kept of each."""
        columns = [*self.primary_key, *self.recompute_by, self.event_time, self.ends_at, self.closes_at]
        return list(dict.fromkeys(column for column in columns if column))

    def scope_in(self, source: Topic | Table) -> tuple[str | None, ...]:
        """What an input has for the columns of `recompute_by`, in order: a column, or an expression in Spark's SQL.

        Without `scope_columns` it is the column of the same name, which the input need not have; None: nothing.
        """
        parameters = [source.name] if source.domain == self.domain else []
        called = self.scope_columns or {}
        names = next((called[p] for p in (*parameters, f"{source.domain}__{source.name}") if p in called), {})
        return tuple(names.get(column, column) for column in self.recompute_by)

    @property
    def watermark_ms(self) -> int:
        return parse_duration(self.watermark, "watermark")

    @property
    def trigger_interval_ms(self) -> int | None:
        return parse_duration(self.trigger_interval, "trigger_interval") if self.trigger_interval else None

    @property
    def depends_within_ms(self) -> int | None:
        return parse_duration(self.depends_within, "depends_within") if self.depends_within else None

    @property
    def freshness_ms(self) -> int | None:
        return parse_duration(self.freshness, "freshness") if self.freshness else None


class Parameters(TypedDict, total=False):
    """What `@table` takes; `Table` says what each means."""

    primary_key: Sequence[str]
    recompute_by: Sequence[str]
    event_time: str
    watermark: str
    closes_at: str
    sequence_by: Sequence[str]
    ends_at: str
    scope_columns: Mapping[str, Mapping[str, str | None]]
    tolerances: Mapping[str, float]
    lineage_columns: Sequence[str]
    depends_within: str
    late: Literal["correct", "drop"]
    trigger_interval: str
    checks: Sequence[Rule]
    owner: str
    tags: Sequence[str]
    freshness: str


@dataclass(frozen=True)
class Draft:
    """A function under `@table`; the registry makes the `Table` of it.

    Attributes:
        given: the parameters given, without those that are wrong by themselves.
        mistakes: in parameters that are wrong by themselves.
    """

    derive: Derive
    given: Mapping[str, Any]
    mistakes: tuple[BadDeclaration, ...] = ()

    def __call__(self, *inputs: DataFrame) -> DataFrame:
        """The rows of the function for these inputs."""
        return self.derive(*inputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the topics and tables that the function reads, in the order of its parameters."""
        return tuple(inspect.signature(self.derive).parameters)


def table(**parameters: Unpack[Parameters]) -> Callable[[Derive], Draft]:
    """Declare the function below as a table of the domain; `Table` says what each parameter means."""
    given: dict[str, Any] = dict(parameters)
    known = Parameters.__annotations__
    mistakes = {name: found_by(*checks) for name, checks in _checks_of(given, known).items()}
    sound = {name: value for name, value in given.items() if not mistakes[name]}
    return lambda function: Draft(function, sound, tuple(m for found in mistakes.values() for m in found))


def _checks_of(given: Mapping[str, Any], known: Iterable[str]) -> dict[str, list[Callable[[], object]]]:
    """Parameter -> what can be checked of it alone."""
    checks: dict[str, list[Callable[[], object]]] = {}
    for name, value in given.items():
        checks[name] = [partial(require_known, [name], known, "@table")]
        if name in ("primary_key", "recompute_by", "sequence_by", "lineage_columns", "tags"):
            checks[name].append(partial(_require_list, name, value))
        elif name in _TABLE_DURATIONS and value is not None:
            checks[name].append(partial(parse_duration, value, name))
        elif name == "late":
            checks[name].append(partial(_require_late, value))
        elif name == "checks":
            checks[name] += [
                partial(_require_rules, [rule], allowed=None, columns=None, of="a table") for rule in value
            ]
    return checks


def _require_late(value: object) -> None:
    if value not in ("correct", "drop"):
        raise BadDeclaration(f"late={value!r}: expected 'correct' or 'drop'.")


def _duration_checks(declaration: Topic | Table, names: Iterable[str]) -> list[Callable[[], object]]:
    values = {name: getattr(declaration, name) for name in names}
    return [partial(parse_duration, value, name) for name, value in values.items() if value is not None]


def require_known(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse a parameter that there is not.

    Raises:
        BadDeclaration: names it, and the nearest that there is.
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=1)
            raise BadDeclaration(
                f"{what} has no parameter {name!r}.",
                hint=f"Did you mean {near[0]!r}?" if near else f"It takes {', '.join(known)}.",
            )


def described_columns(function: Derive) -> dict[str, str]:
    """Column -> text, of each line `column: text` of the docstring; lines that are indented further go on."""
    found: dict[str, str] = {}
    last = None
    for line in (inspect.getdoc(function) or "").splitlines():
        head = _DESCRIBED.match(line)
        if head:
            last = head[1]
            found[last] = head[2]
        elif last and line.startswith("    "):
            found[last] += " " + line.strip()
        else:
            last = None
    return found


def _set(declaration: Topic | Table, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(declaration, name, value)


def _require_list(name: str, value: object) -> None:
    if isinstance(value, str):
        raise BadDeclaration(f"{name}={value!r}: expected a list of columns.", hint=f"Write {name}=[{value!r}].")


def _require_names(columns: Iterable[str]) -> None:
    known: dict[str, str] = {}
    for column in columns:
        if not COLUMN.match(column) or keyword.iskeyword(column):
            raise BadDeclaration(
                f"{column!r} cannot name a column.",
                hint="Use letters, digits and _, a letter first; names that begin with _ are the platform's.",
            )
        other = known.setdefault(column.lower(), column)
        if other != column:
            raise BadDeclaration(f"The columns {column!r} and {other!r} differ only in case, which SQL ignores.")


def _require_columns(what: str, wanted: Sequence[str], columns: Mapping[str, object]) -> None:
    missing = [column for column in wanted if column not in columns]
    if missing:
        raise BadDeclaration(
            f"{what} names {', '.join(missing)}, which the schema lacks.", hint=f"It has {', '.join(columns)}."
        )


def _require_rules(
    rules: Sequence[object], *, allowed: frozenset[str] | None, columns: Mapping[str, object] | None, of: str
) -> None:
    for rule in rules:
        if not isinstance(rule, Rule):
            raise BadDeclaration(f"checks holds {rule!r}; expected rules.", hint="Import them from tables.")
        if allowed is not None and rule.kind not in allowed:
            raise BadDeclaration(
                f"The rule {rule} cannot be decided on a record alone.",
                hint=f"Rules of {of}: {', '.join(sorted(allowed))}.",
            )
        if columns is not None:
            _require_columns(f"The rule {rule}", rule.columns, columns)
