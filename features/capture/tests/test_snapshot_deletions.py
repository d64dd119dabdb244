"""What a new snapshot of a captured table does not have is deleted, by events as Debezium writes them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.tables.declared import bound_as
from twofold.features.capture.captured_table import Capture
from twofold.features.capture.captured_topic import changes_of
from twofold.features.capture.snapshot_deletions import deletions, newest_snapshot
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import CaptureFailed
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA, RAW_SCHEMA, Decoder, events_schema

KEY = {
    "id": "long",
    "name": "string",
    "price": "decimal(12,2)",
    "born": "date",
    "woke_at": "timestamp_ntz",
    "seen_at": "timestamp",
    "active": "boolean",
}
AGAIN = Capture(topic="bank.people", table="public.people", snapshot=2)
SEEN = datetime(2020, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def declared(columns: dict[str, str]) -> Topic:
    return bound_as(changes_of("public.people", columns=columns, primary_key=list(columns)), "people", "bank")


def event(id_: int, op: str, snapshot: int, commit: int, lsn: int, **key: Any) -> dict[str, Any]:
    place = {"cdc_snapshot": snapshot, "cdc_commit_lsn": commit, "cdc_lsn": lsn, "cdc_at": SEEN, "_offset": commit}
    return {"id": id_, "cdc_op": op, **place, **key}


def write(lake: Lake, topic: Topic, events: list[dict[str, Any]]) -> None:
    lake.ensure(topic.full_name, events_schema(topic), statistics=[topic.event_time])
    write_deltalake(lake.uri(topic.full_name), pa.Table.from_pylist(events, events_schema(topic)), mode="append")


def gone(lake: Lake, topic: Topic) -> list[int]:
    return [json.loads(key)["id"] for key, _ in deletions(lake, topic, AGAIN)]


def test_rows_are_deleted_that_are_neither_in_the_snapshot_nor_after_it(lake: Lake) -> None:
    topic = declared({"id": "long"})
    assert newest_snapshot(lake, AGAIN) == 0
    before = [
        event(1, "snapshot", 1, 10, 0),
        event(2, "snapshot", 1, 10, 0),
        event(3, "insert", 1, 20, 21),
        event(4, "insert", 1, 30, 31),
        event(4, "delete", 1, 40, 41),
        event(5, "insert", 1, 50, 51),
    ]
    write(lake, topic, before)
    assert newest_snapshot(lake, AGAIN) == 1
    write(lake, topic, [event(1, "snapshot", 2, 80, 0), event(5, "insert", 2, 90, 91)])
    assert newest_snapshot(lake, AGAIN) == 2
    assert gone(lake, topic) == [2, 3]
    write(lake, topic, [event(2, "delete", 2, 80, 0)])
    assert gone(lake, topic) == [3]


def test_an_empty_snapshot_deletes_every_row(lake: Lake) -> None:
    topic = declared({"id": "long"})
    write(lake, topic, [event(1, "snapshot", 1, 10, 0), event(2, "insert", 1, 20, 21)])
    assert gone(lake, topic) == [1, 2]


def quarantine(lake: Lake, value: bytes) -> None:
    row = {"_offset": 90, "value": value, "reasons": ["at `ratio`"]}
    target = lake.uri("bank.people_quarantine")
    write_deltalake(target, pa.Table.from_pylist([row], QUARANTINE_SCHEMA), mode="append")


def test_a_row_that_the_snapshot_has_and_was_refused_is_not_deleted(lake: Lake) -> None:
    topic = declared({"id": "long", "born": "date"})
    days = [date(1931, 5, 6), date(1931, 5, 7)]
    write(lake, topic, [event(n, "snapshot", 1, 10, 0, born=day) for n in (1, 2) for day in days])
    source = {"name": AGAIN.name, "snapshot": "true", "sequence": '[null,"80"]', "lsn": 80, "ts_us": 0}
    row = {"op": "r", "source": source, "before": None, "after": {"id": 1, "born": -14_120, "ratio": "NaN"}}
    quarantine(lake, json.dumps(row).encode())
    earlier = {"op": "r", "source": {**source, "name": "twofold_1_bank_people"}, "after": {"id": 2, "born": -14_120}}
    quarantine(lake, json.dumps(earlier).encode())
    quarantine(lake, json.dumps({"op": "t", "source": source}).encode())
    found = [json.loads(key) for key, _ in deletions(lake, topic, AGAIN)]
    assert found == [{"id": 1, "born": -14_119}, {"id": 2, "born": -14_120}, {"id": 2, "born": -14_119}]


def test_nothing_is_deleted_where_the_key_of_a_refused_row_is_unknown(lake: Lake) -> None:
    topic = declared({"id": "long"})
    write(lake, topic, [event(1, "snapshot", 1, 10, 0)])
    quarantine(lake, b"cut off")
    with pytest.raises(CaptureFailed, match="1 changes of snapshot 2 were refused whose key cannot be read"):
        gone(lake, topic)


@pytest.mark.parametrize("in_snapshot", [True, False])
def test_a_deletion_is_read_back_as_one_of_the_same_key(lake: Lake, in_snapshot: bool) -> None:
    topic = declared(KEY)
    key: dict[str, Any] = {
        "name": 'ä"b',
        "price": Decimal("-1.50"),
        "born": date(1931, 5, 6),
        "woke_at": datetime(1960, 1, 2, 3, 4, 5, 1),
        "seen_at": SEEN,
        "active": False,
    }
    write(lake, topic, [event(-7, "insert", 1, 20, 21, **key)])
    if in_snapshot:
        write(lake, topic, [event(1, "snapshot", 2, 80, 0, **key)])
    [(message_key, value)] = deletions(lake, topic, AGAIN)
    assert json.loads(message_key)["born"] == -14_120
    raw = pa.table([[0], [9], [SEEN], [message_key], [value]], names=RAW_SCHEMA.names).cast(RAW_SCHEMA)
    decoded = Decoder(topic).decode(raw, None)
    assert decoded.rejected["reasons"].to_pylist() == []
    [row] = decoded.accepted.to_pylist()
    assert {name: row[name] for name in KEY} == {"id": -7, **key}
    place = [row[name] for name in ("cdc_op", "cdc_snapshot", "cdc_lsn", "cdc_commit_lsn")]
    assert place == ["delete", 2, 0, 80 if in_snapshot else 21]
    assert (row["cdc_at"] == SEEN) == in_snapshot
