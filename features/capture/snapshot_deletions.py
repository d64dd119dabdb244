"""Derives the deletions that a new snapshot of a captured table implies: earlier rows that are not in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from twofold.features.capture.captured_table import Capture
from twofold.features.capture.debezium_decoder import EPOCH, EPOCH_DAY, DebeziumParser, names_no_row
from twofold.features.capture.lost_changes import refused_changes
from twofold.infra import COMMAND
from twofold.infra.delta.lake import QUARANTINE
from twofold.infra.duckdb_session import query
from twofold.infra.errors import CaptureFailed
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    import pyarrow as pa

    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.topic import Topic

PLACE = "cdc_snapshot, cdc_lsn > 0, cdc_commit_lsn, cdc_lsn, cdc_op != 'delete'"


def newest_snapshot(lake: Lake, capture: Capture) -> int:
    """Returns the number of the newest snapshot in the topic's events, always 1 for an outbox; 0 without events."""
    if not lake.exists(capture.topic):
        return 0
    if capture.is_outbox:
        return min(1, lake.rows(capture.topic))
    rows = lake.open(capture.topic).scan(columns=["cdc_snapshot"])
    return int(query("SELECT coalesce(max(cdc_snapshot), 0) AS newest FROM rows", rows=rows)["newest"][0].as_py())


def deletions(lake: Lake, topic: Topic, capture: Capture, version: int | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yields a change event, as Debezium's key and value, for each row that is not in this snapshot.

    The events must have the whole snapshot. Rows with changes after the snapshot count as present, in any order of
    events, and so do refused rows: the database has them, and tables keep their version. An outbox has no deletions,
    since its records are events.

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
    """Returns the keys of quarantined rows of the snapshot and of later changes."""
    refused = [value for value in refused_changes(lake, topic.full_name, capture.snapshot) if not names_no_row(value)]
    keys = DebeziumParser(topic.record_format).keys(refused)
    if len(keys) < len(refused):
        raise CaptureFailed(
            f"{topic.full_name}: {len(refused) - len(keys)} changes of snapshot {capture.snapshot} were refused whose "
            "key cannot be read: the rows that are gone are not known.",
            hint=f"`{COMMAND} sql` shows {topic.full_name}{QUARANTINE} with the reasons; declare the key as it is.",
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
    """Converts a value to the form in which the connector writes it."""
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
