"""The declarations of topics that are captured from one table of a PostgreSQL database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from twofold.features.capture.captured_table import INTAKE, Capture
from twofold.infra.encodings.column_types import SCALARS, parse_type
from twofold.infra.errors import BadDeclaration
from twofold.infra.extras import require_extra
from twofold.tables.declare.record_fields import header, key
from twofold.tables.declare.records.origin import Origin
from twofold.tables.declare.topic import Topic

if TYPE_CHECKING:
    from twofold.infra.kafka.topic_admin import TopicSpec
    from twofold.quality.rules import Rule
    from twofold.tables.declare.registry import Registry

_OF_CHANGES = {
    "cdc_op": ("string", "snapshot, insert, update or delete; or mark, an event of no row"),
    "cdc_snapshot": ("long", "number of the snapshot that the change belongs to, or follows; 0: an incremental one"),
    "cdc_commit_lsn": ("long", "position of the previous commit in the database's log"),
    "cdc_lsn": ("long", "position of the change in the database's log; with cdc_commit_lsn it orders changes"),
    "cdc_at": ("timestamp", "when the transaction was committed; of a snapshot's row when it was read"),
    "cdc_transaction": ("long?", "id of the transaction"),
    "cdc_unchanged": (
        "array<string>",
        "columns whose large values the update did not touch, so that the database did not send them",
    ),
    "cdc_missing": ("string?", "declared columns that the table did not have, with commas between; mostly null"),
}
"""The columns that say what a change is, with type and meaning; the others are those of the row."""
_OF_OUTBOX = {
    "event_id": (header("id", "string"), "id of the event"),
    "event_type": (header("type", "string"), "kind of the event"),
    "aggregate_type": (header("aggregatetype", "string"), "kind of what the event happened to"),
    "aggregate_id": (key("string"), "id of what the event happened to"),
}
"""The columns of an outbox's events that are no fields of the payload."""
_SCALARS = (*SCALARS, "decimal")
ELEMENTS = ("string", "int", "long")
"""Of arrays: of the others a value that did not travel cannot be recognized."""
INTAKE_MS = 7 * 24 * 3_600_000
"""How long an intake keeps what no relay takes; what one has taken is removed at once."""
SEGMENT_MS = 60_000
"""How long a segment of an intake takes records: only whole ones leave the disk."""
_TABLE = re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*\Z")


def changes_of(
    table: str,
    *,
    columns: Mapping[str, str],
    primary_key: Sequence[str],
    max_bytes: int = 1 << 20,
    segment_bytes: int = 16 * 1024 * 1024,
    local_retention: str = "1 day",
) -> Topic:
    """Declares a topic with every change of a table of the captured database, a snapshot of its rows first.

    An event has the row as it is after the change, of a delete its key, and:

    - `cdc_op`: `snapshot`, `insert`, `update` or `delete`; or `mark`, an event of no row, which functions do not see:
      every change that was committed before `cdc_lsn` precedes it, in each topic of the database.
    - `cdc_snapshot`: the number of the snapshot that it belongs to, or follows: 1, and the next each time that the
      table is captured again. A deletion that belongs to a snapshot is of a row that was gone by then. 0: of an
      incremental snapshot, which a signal to Debezium starts; tables do not need its rows.
    - `cdc_commit_lsn`, `cdc_lsn`: the positions in the database's log of the previous commit and of the change,
      which order changes. A row of a snapshot has the position that the snapshot shows, and 0.
    - `cdc_at`: when the transaction was committed, of a snapshot's row when it was read; the event time.
    - `cdc_transaction`: the id of the transaction.
    - `cdc_unchanged`: columns whose large values the update did not touch, so that the database did not send them.
    - `cdc_missing`: declared columns that the table did not have, with ", " between them; mostly null.

    Args:
        table: `schema.name`.
        columns: column -> type, as in `schema` of a topic. All but the key may be null in an event, as may
            elements of arrays. Columns that are not named are kept in `_rest`. A `personal(...)` column is a text in
            the database; what `domain_of` and its like compute is none there.
        primary_key: that of the table.
        max_bytes, segment_bytes, local_retention: as of a topic.
    """
    origin = _captured(table, _OF_CHANGES)
    if isinstance(primary_key, str) or not primary_key:
        raise BadDeclaration(f"primary_key={primary_key!r}: expected a list of columns.")
    schema = _captured_schema(columns, primary_key)
    return Topic(
        encoding="debezium",
        origin=origin,
        schema={**schema, **{column: kind for column, (kind, _) in _OF_CHANGES.items()}},
        event_time="cdc_at",
        message_key=primary_key[0],
        dedup_keys=[*primary_key, "cdc_snapshot", "cdc_commit_lsn", "cdc_lsn", "cdc_op"],
        # The clock is the database's; a change that is refused for it would be missing in the table.
        max_future_skew=None,
        unknown_fields="keep",
        # One partition: the order of the log is that of the commits.
        partitions=1,
        max_bytes=max_bytes,
        segment_bytes=segment_bytes,
        local_retention=local_retention,
    )


def _captured_schema(columns: Mapping[str, str], primary_key: Sequence[str]) -> dict[str, str]:
    """Builds the schema of a topic of these columns, all but the key nullable."""
    schema: dict[str, str] = {}
    for column, text in columns.items():
        kind = parse_type(column, text)
        if column.startswith("cdc_"):
            raise BadDeclaration(f"{column!r}: names that begin with cdc_ are those of the change.")
        inner = kind.element.name if kind.name == "array" and kind.element else None
        if kind.name not in _SCALARS and inner not in ELEMENTS:
            raise BadDeclaration(
                f"{column} is declared {text!r}, which no column of a database is captured as.",
                hint=f"Types: {', '.join(_SCALARS)}, and arrays of {', '.join(ELEMENTS)}.",
            )
        if column in primary_key and (kind.nullable or inner or kind.name in ("double", "json", "binary")):
            raise BadDeclaration(f"{column} is declared {text!r}; expected a single exact value, never null, in a key.")
        if inner:
            schema[column] = f"array<{inner}?>?"
        else:
            schema[column] = text if column in primary_key or kind.nullable else f"{text}?"
    missing = [column for column in primary_key if column not in schema]
    if missing:
        raise BadDeclaration(f"primary_key names {', '.join(missing)}, which columns lacks.")
    return schema


def outbox_of(
    table: str,
    *,
    schema: Mapping[str, str],
    event_time: str,
    checks: Sequence[Rule] = (),
    unknown_fields: Literal["refuse", "ignore", "keep"] = "keep",
    max_bytes: int = 1 << 20,
    segment_bytes: int = 16 * 1024 * 1024,
    local_retention: str = "1 day",
) -> Topic:
    """Declares a topic with the events that a service writes to an outbox table, within its own transactions.

    The table has Debezium's columns `id`, `aggregatetype`, `aggregateid`, `type` and `payload`, none null. Each
    inserted row is one record: its value is `payload`, JSON, its key is `aggregateid`, its headers are the others.
    Updates and deletes of a row are no events, so that the service may delete it in the same transaction. Records are
    in the order of commits. One that is sent again has the same `event_id`, and counts once in tables.

    An event has the columns of `schema`, then `event_id`, `event_type`, `aggregate_type` and `aggregate_id`, strings.

    Args:
        table: `schema.name`.
        schema: of the payload, as of a topic.
        event_time: the `timestamp` column of the payload that says when the fact happened.
        checks, unknown_fields, max_bytes, segment_bytes, local_retention: as of a topic.
    """
    origin = _captured(table, _OF_OUTBOX)
    taken = [column for column in schema if column in _OF_OUTBOX]
    if taken:
        raise BadDeclaration(
            f"{taken[0]!r} is a column of every event of an outbox.",
            hint=f'Give the column another name; `field("{taken[0]}", ...)` takes the field of the payload.',
        )
    return Topic(
        origin=origin,
        schema={**schema, **{column: kind for column, (kind, _) in _OF_OUTBOX.items()}},
        event_time=event_time,
        message_key="aggregate_id",
        dedup_keys=["event_id"],
        checks=checks,
        # The transaction was committed: an event that is refused would be missing.
        max_future_skew=None,
        unknown_fields=unknown_fields,
        partitions=1,
        max_bytes=max_bytes,
        segment_bytes=segment_bytes,
        local_retention=local_retention,
    )


def captures(registry: Registry) -> list[Capture]:
    """Lists the captures of the declared topics; the first one of changes writes the marks."""
    declared = [_capture(topic, topic.captures) for topic in registry.topics.values() if topic.captures]
    writer = next((capture for capture in declared if not capture.is_outbox), None)
    return [replace(capture, writes_marks=capture is writer) for capture in declared]


def is_relayed(topic: Topic) -> bool:
    """Whether records of the topic are captured, and encrypted between the connector and the topic."""
    return topic.captures is not None and bool(topic.covered)


def largest_captured(topic: Topic) -> int:
    """Returns how many bytes a record may have that a connector writes: encrypted it is a third longer, at least."""
    return topic.largest_record * 5 // 8 if is_relayed(topic) else topic.largest_record


def intakes(topic: Topic) -> Iterator[TopicSpec]:
    """Yields the topic in which captured records wait in the clear to be encrypted: no archive keeps them."""
    from twofold.infra.kafka.topic_admin import TopicSpec

    if is_relayed(topic):
        configs = {
            "message.timestamp.type": "LogAppendTime",
            "cleanup.policy": "delete",
            "retention.ms": str(INTAKE_MS),
            "segment.ms": str(SEGMENT_MS),
            "file.delete.delay.ms": "1000",
            "max.message.bytes": str(largest_captured(topic)),
        }
        yield TopicSpec(name=f"{topic.full_name}{INTAKE}", partitions=1, configs=configs)


def _captured(table: str, added: Mapping[str, tuple[str, str]]) -> Origin:
    require_extra("capture")
    if not _TABLE.match(table):
        raise BadDeclaration(f"{table!r}: expected a table as `schema.name`, in lower case.")
    return Origin(
        columns={column: meaning for column, (_, meaning) in added.items()},
        table=table,
        # As many as fit into a segment: a row that the broker refuses stops the capture.
        most_bytes=32 << 20,
        topics=f"{__name__}:intakes",
        mistakes="twofold.features.capture.captured_table:unfit_names",
    )


def _capture(topic: Topic, table: str) -> Capture:
    computed = [name for name, given in topic.covered.items() if given.is_computed]
    columns = {name: kind for name, kind in topic.types.items() if name not in computed}
    row = {name: kind for name, kind in columns.items() if not name.startswith("cdc_")} if topic.has_marks else {}
    return Capture(
        topic=topic.full_name,
        table=table,
        is_outbox=not topic.has_marks,
        is_personal=is_relayed(topic),
        largest_record=largest_captured(topic),
        columns={name: (kind.element or kind).name for name, kind in row.items()},
        primary_key=tuple(name for name in topic.dedup_keys if name in row),
    )
