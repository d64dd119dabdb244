"""What the changes of a captured table amount to is compared with a real PostgreSQL, by hashes first, then by rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.batch.audit.two_copies import recorded
from tests.support.postgres import Server
from tests.tables.declared import bound_as
from twofold.batch.audit.hash_buckets import Turn
from twofold.features.capture.captured_table import Capture
from twofold.features.capture.captured_topic import changes_of
from twofold.features.capture.operate import database_audit
from twofold.features.capture.operate.database_audit import ComparedTable, audit_captured, compare_with_database
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import CaptureFailed
from twofold.infra.postgres.database_connection import connected, query
from twofold.infra.project.settings import Settings
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import events_schema

pytestmark = pytest.mark.platform

COLUMNS = {
    "id": "long",
    "born": "date",
    "name": "string",
    "code": "string",
    "exact": "string",
    "balance": "decimal(20,4)",
    "price": "decimal(19,2)",
    "ratio": "double",
    "weight": "double",
    "active": "boolean",
    "woke_at": "timestamp_ntz",
    "seen_at": "timestamp",
    "profile": "json",
    "photo": "binary",
    "tags": "array<string>",
    "scores": "array<int>",
    "mood": "string",
    "span": "string",
}
SCHEMA = """
CREATE TYPE mood AS ENUM ('happy', 'sad');
CREATE TABLE people (id bigint, born date, name text, code char(5), exact numeric, balance numeric(20,4), price money,
    ratio float8, weight real, active boolean, woke_at timestamp, seen_at timestamptz, profile jsonb, photo bytea,
    tags text[], scores int[], mood mood, span interval, PRIMARY KEY (id, born));
INSERT INTO people VALUES (1, '1931-05-06', 'ä|"\\', 'ab', 0.33333333333333333333, -1.5, 12.5, 1e20 / 3, 0.1, true,
    '1969-12-31 23:59:59.999999', '1965-03-04 05:06:07.000008+09', '{"a": [1, "ü"]}', '\\x00ff', '{x,NULL,"a,b"}',
    '{}', 'sad', '1 day');
INSERT INTO people (id, born) VALUES (2, '2020-01-01');
"""
CAPTURE = Capture(topic="bank.people", table="public.people")
KEY = {"id": 1, "born": date(1931, 5, 6)}
ROW = {
    **KEY,
    "name": 'ä|"\\',
    "code": "ab   ",
    "exact": "0.33333333333333333333",
    "balance": Decimal("-1.5000"),
    "price": Decimal("12.50"),
    "ratio": 1e20 / 3,
    "weight": 0.1,
    "active": True,
    "woke_at": datetime(1969, 12, 31, 23, 59, 59, 999_999),
    "seen_at": datetime(1965, 3, 3, 20, 6, 7, 8, UTC),
    "profile": '{"a": [1, "ü"]}',
    "photo": b"\x00\xff",
    "tags": ["x", None, "a,b"],
    "scores": [],
    "mood": "sad",
    "span": "P1D",
}
EMPTY = {"id": 2, "born": date(2020, 1, 1)}


@pytest.fixture(scope="module")
def server(postgres: Server) -> Settings:
    return postgres.with_tables(SCHEMA)


@pytest.fixture
def topic() -> Topic:
    return bound_as(changes_of("public.people", columns=COLUMNS, primary_key=["id", "born"]), "people", "bank")


@pytest.fixture
def lake(server: Settings, tmp_path: Any, topic: Topic) -> Lake:
    """A lake without events but for a mark that comes after all."""
    lake = Lake(replace(server, lake=str(tmp_path / "lake")))
    lake.ensure(topic.full_name, events_schema(topic), statistics=[topic.event_time])
    write(lake, topic, {"cdc_op": "mark", "cdc_snapshot": 1, "cdc_lsn": 2**60})
    return lake


def write(lake: Lake, topic: Topic, *events: dict[str, Any]) -> None:
    rows = [{"_offset": 0, "cdc_at": datetime.now(UTC), "cdc_snapshot": 1, **event} for event in events]
    write_deltalake(lake.uri(topic.full_name), pa.Table.from_pylist(rows, events_schema(topic)), mode="append")


def snapshot(row: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {**row, **changed, "cdc_op": "snapshot", "cdc_commit_lsn": 10, "cdc_lsn": 0}


def update(lsn: int, row: dict[str, Any], **added: Any) -> dict[str, Any]:
    return {**row, "cdc_op": "update", "cdc_commit_lsn": lsn, "cdc_lsn": lsn, "cdc_transaction": 1, **added}


def compared(lake: Lake, topic: Topic, turn: Turn | None = None) -> ComparedTable:
    return compare_with_database(lake, topic, CAPTURE, turn or Turn())


def test_a_row_of_every_type_is_equal_in_both(lake: Lake, topic: Topic) -> None:
    write(lake, topic, snapshot(ROW), snapshot(EMPTY))
    found = compared(lake, topic)
    assert found == ComparedTable(table="public.people", rows=2, left_out=["span"])
    assert found.fault == ""


@pytest.mark.parametrize("column", [name for name in ROW if name not in (*KEY, "span")])
def test_a_null_in_place_of_a_value_of_any_type_is_found(lake: Lake, topic: Topic, column: str) -> None:
    write(lake, topic, snapshot(ROW, **{column: None}), snapshot(EMPTY))
    assert compared(lake, topic).different == [f"id=1, born=1931-05-06: {column}"]


def test_rows_that_are_missing_extra_or_different_are_named(lake: Lake, topic: Topic) -> None:
    write(lake, topic, snapshot(ROW, ratio=1e20, scores=None), snapshot(EMPTY, id=3))
    found = compared(lake, topic)
    assert found.fault == (
        "its changes do not give the rows of public.people in the database: 1 missing (id=2, born=2020-01-01), "
        "1 extra (id=3, born=2020-01-01), 1 different (id=1, born=1931-05-06: ratio, scores)"
    )


def test_changes_are_followed_and_large_values_are_the_last_ones(lake: Lake, topic: Topic) -> None:
    write(
        lake,
        topic,
        snapshot({**ROW, "name": "old"}),
        snapshot(EMPTY),
        update(20, {**ROW, "photo": None}, cdc_unchanged=["photo"]),
        update(30, {**ROW, "tags": None}, cdc_missing="other, tags"),
        {**snapshot({"id": 4, "born": date(2020, 1, 1)}), "cdc_snapshot": 0},
        update(25, {"id": 5, "born": date(2020, 1, 1)}),
        update(40, {"id": 5, "born": date(2020, 1, 1)}, cdc_op="delete"),
    )
    assert compared(lake, topic).fault == ""


def test_a_transaction_that_the_database_does_not_show_counts_not(server: Settings, lake: Lake, topic: Topic) -> None:
    """Also one that was not committed when a later one was."""
    with connected(server) as connection, connection.transaction():
        [(running,)] = connection.execute("SELECT txid_current()")
        query(server, "SELECT txid_current()")
        unseen = [update(50 + n, {**ROW, "name": "not yet"}, cdc_transaction=running + n * 100) for n in (0, 1)]
        write(lake, topic, snapshot(ROW), snapshot(EMPTY), *unseen)
        assert compared(lake, topic).fault == ""
    days_ago = {"cdc_at": datetime.now(UTC) - timedelta(days=3)}
    write(lake, topic, update(90, {**ROW, "mood": "same number, earlier"}, cdc_transaction=running + 100, **days_ago))
    assert compared(lake, topic).different == ["id=1, born=1931-05-06: mood"]


def test_the_shares_of_all_turns_are_the_whole(lake: Lake, topic: Topic) -> None:
    write(lake, topic, snapshot(ROW, active=False))
    found = [compared(lake, topic, Turn(number, 4)) for number in range(4)]
    assert sum(one.rows for one in found) == 2
    assert sum(len(one.different) for one in found) == 1
    assert sum(len(one.missing) for one in found) == 1


def test_a_table_whose_key_is_gone_is_not_compared(lake: Lake) -> None:
    other = bound_as(changes_of("public.people", columns={"number": "long"}, primary_key=["number"]), "people", "bank")
    with pytest.raises(CaptureFailed, match="by its key: number is not there"):
        compared(lake, other)


def test_changes_that_do_not_arrive_are_not_compared(
    server: Settings, lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_audit, "ARRIVAL_S", 0.1)
    lake.open(topic.full_name).delete()
    with pytest.raises(CaptureFailed, match=r"its events have not reached LSN \d+ within"):
        compared(lake, topic)


@pytest.mark.parametrize(("most", "turns"), [(0, 20), (9, 1)])
def test_what_an_audit_compares_is_recorded_with_its_share(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch, most: int, turns: int
) -> None:
    found = ComparedTable(table="public.people", rows=7, missing=["1"], different=["2", "3"])
    monkeypatch.setattr(database_audit, "compare_with_database", lambda *_: found)
    monkeypatch.setattr(database_audit, "most_rows", lambda *_: most - 1)
    monkeypatch.setattr(database_audit, "captures", lambda _: [CAPTURE])
    above = SimpleNamespace(topics={topic.full_name: topic})
    platform: Any = SimpleNamespace(lake=lake, registry=SimpleNamespace(above=lambda _: above))
    table: Any = None
    [audited] = audit_captured(platform, [table], Turn(3, 20))
    assert (audited.other, audited.rows, audited.differing) == ("public.people of the database", 7, 3)
    assert "1 missing (1), 2 different (2; 3)" in audited.fault
    assert recorded(lake) == [(topic.full_name, "audit_database", 7, 3, turns)]
