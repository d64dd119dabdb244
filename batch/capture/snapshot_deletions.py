"""Deletions that a new snapshot of a captured table implies: of rows that were there before, and are not in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from batch.capture.lost_changes import refused_changes
from infra.capture.captured_table import Capture
from infra.capture.debezium_decoder import EPOCH, EPOCH_DAY, DebeziumParser, is_truncate
from infra.delta.lake import QUARANTINE
from infra.duckdb_session import query
from infra.errors import CaptureFailed
from infra.sql.names import DUCKDB

if TYPE_CHECKING:
    import pyarrow as pa

    from infra.delta.lake import Lake
    from tables.declare.topic import Topic

PLACE = "cdc_snapshot, cdc_lsn > 0, cdc_commit_lsn, cdc_lsn, cdc_op != 'delete'"


def newest_snapshot(lake: Lake, capture: Capture) -> int:
    """The number of the newest snapshot in the topic's events, 1 of an outbox's, which do not say it; 0: no events."""
    if not lake.exists(capture.topic):
        return 0
    if capture.is_outbox:
        return min(1, lake.rows(capture.topic))
    rows = lake.open(capture.topic).scan(columns=["cdc_snapshot"])
    return int(query("SELECT coalesce(max(cdc_snapshot), 0) AS newest FROM rows", rows=rows)["newest"][0].as_py())


def deletions(lake: Lake, topic: Topic, capture: Capture, version: int | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of the change event, as Debezium writes them, for each row that is gone with this snapshot.

    The events must have the whole snapshot. What is streamed after it counts as there, in whatever order it comes. So
    does a row that was refused: the database has it, and its tables keep what they have. Of an outbox nothing is gone:
    what happened stays so.

    Raises:
        CaptureFailed: a change was refused whose key cannot be read.
    """
    if capture.is_outbox:
        return
    refused = _refused_keys(lake, topic, capture)
    key = refused.column_names
    columns = [*key, "cdc_op", "cdc_at", "cdc_snapshot", "cdc_commit_lsn", "cdc_lsn"]

    def asked(sql: str) -> pa.Table:
        rows = lake.open(topic.full_name, version).scan(columns=columns, predicate=topic.row_condition)
        return query(sql, [capture.snapshot], rows=rows, refused=refused)

    moment = "SELECT max(greatest(cdc_commit_lsn, cdc_lsn)) AS lsn, max(cdc_at) AS at FROM rows WHERE cdc_snapshot"
    [at] = asked(f"{moment} = ? AND cdc_lsn = 0").to_pylist()
    if at["lsn"] is None:  # the snapshot is empty
        [at] = asked(f"{moment} < ?").to_pylist()
        at["at"] = datetime.now(UTC)
    names = DUCKDB.names(key)
    gone = asked(
        f"WITH gone AS (SELECT {names} FROM rows GROUP BY ALL "
        f"HAVING max(cdc_snapshot) < ? AND arg_max(cdc_op, row({PLACE})) != 'delete') "
        f"FROM gone ANTI JOIN refused USING ({names}) ORDER BY ALL"
    )
    for row in gone.to_pylist():
        yield _deletion(capture, row, at["lsn"], at["at"])


def _refused_keys(lake: Lake, topic: Topic, capture: Capture) -> pa.Table:
    """The keys of rows in quarantine that belong to the snapshot, or to changes after it."""
    refused = [value for value in refused_changes(lake, topic.full_name, capture.snapshot) if not is_truncate(value)]
    keys = DebeziumParser(topic.record_format).keys(refused)
    if len(keys) < len(refused):
        raise CaptureFailed(
            f"{topic.full_name}: {len(refused) - len(keys)} changes of snapshot {capture.snapshot} were refused whose "
            "key cannot be read: the rows that are gone are not known.",
            hint=f"`./twofold sql` shows {topic.full_name}{QUARANTINE} with the reasons; declare the key as it is.",
            topic=topic.full_name,
        )
    return keys


def _deletion(capture: Capture, key: Mapping[str, object], lsn: int, at: datetime) -> tuple[bytes, bytes]:
    image = {name: _written(value) for name, value in key.items()}
    source = {
        "name": capture.name,
        "snapshot": "true",
        "sequence": msgspec.json.encode([None, str(lsn)]).decode(),
        "lsn": lsn,
        "ts_us": _micros(at),
    }
    event = {"before": image, "after": None, "source": source, "op": "d"}
    return msgspec.json.encode(image), msgspec.json.encode(event)


def _written(value: object) -> object:
    """The value as the connector is configured to write it."""
    match value:
        case Decimal():
            return str(value)
        case datetime(tzinfo=None):
            return _micros(value.replace(tzinfo=UTC))
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.toordinal() - EPOCH_DAY
    return value


def _micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)
