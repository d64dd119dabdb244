"""The declarations of topics that are captured from one table of a PostgreSQL database."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from twofold.infra.capture.captured_table import Capture
from twofold.infra.encodings.column_types import parse_type
from twofold.infra.errors import BadDeclaration
from twofold.infra.extras import require_extra
from twofold.tables.declare.personal import Computed, personal_columns
from twofold.tables.declare.record_fields import header, key
from twofold.tables.declare.topic import Topic

if TYPE_CHECKING:
    from twofold.quality.rules import Rule
    from twofold.tables.declare.registry import Registry

ADDED = {
    "cdc_op": "string",
    "cdc_snapshot": "long",
    "cdc_commit_lsn": "long",
    "cdc_lsn": "long",
    "cdc_at": "timestamp",
    "cdc_transaction": "long?",
    "cdc_unchanged": "array<string>",
    "cdc_missing": "string?",
}
"""The columns that say what a change is; the others are those of the row."""
EVENT = {
    "event_id": header("id", "string"),
    "event_type": header("type", "string"),
    "aggregate_type": header("aggregatetype", "string"),
    "aggregate_id": key("string"),
}
"""The columns of an outbox's events that are no fields of the payload."""
SCALARS = (
    "string",
    "boolean",
    "int",
    "long",
    "double",
    "decimal",
    "date",
    "timestamp",
    "timestamp_ntz",
    "binary",
    "json",
)
ELEMENTS = ("string", "int", "long")
"""Of arrays: of the others a value that did not travel cannot be recognized."""
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
    _require_table(table)
    if isinstance(primary_key, str) or not primary_key:
        raise BadDeclaration(f"primary_key={primary_key!r}: expected a list of columns.")
    schema = _captured_schema(columns, primary_key)
    return Topic(
        encoding="debezium",
        captures=table,
        schema={**schema, **ADDED},
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
        if kind.name not in SCALARS and inner not in ELEMENTS:
            raise BadDeclaration(
                f"{column} is declared {text!r}, which no column of a database is captured as.",
                hint=f"Types: {', '.join(SCALARS)}, and arrays of {', '.join(ELEMENTS)}.",
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
    _require_table(table)
    taken = [column for column in schema if column in EVENT]
    if taken:
        raise BadDeclaration(
            f"{taken[0]!r} is a column of every event of an outbox.",
            hint=f'Give the column another name; `field("{taken[0]}", ...)` takes the field of the payload.',
        )
    return Topic(
        captures=table,
        schema={**schema, **EVENT},
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
    return topic.captures is not None and bool(personal_columns(topic))


def largest_captured(topic: Topic) -> int:
    """Returns how many bytes a record may have that a connector writes: encrypted it is a third longer, at least."""
    return topic.largest_record * 5 // 8 if is_relayed(topic) else topic.largest_record


def _capture(topic: Topic, table: str) -> Capture:
    columns = {name: topic.types[name] for name, given in topic.schema.items() if not isinstance(given, Computed)}
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


def _require_table(table: str) -> None:
    require_extra("capture")
    if not _TABLE.match(table):
        raise BadDeclaration(f"{table!r}: expected a table as `schema.name`, in lower case.")
