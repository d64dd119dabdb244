"""Captured tables are joined at a mark that each of them has met since its newest snapshot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.tables.declared import written
from twofold.features.capture.complete_through import complete_through
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import CaptureFailed
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.events.record_decoder import events_schema
from twofold.tables.refresh.streaming_checkpoint import Checkpoint, FeedPosition

TOPIC = '''"""Changes."""
from twofold import changes_of

TOPIC = changes_of("public.{0}", columns={{"id": "long"}}, primary_key=["id"])
'''
TABLE = '''"""Rows."""
from twofold import latest_rows, table


@table(primary_key=["id"], recompute_by=["id"])
def {0}_now({0}):
    return latest_rows({0}, key=["id"], columns=[])
'''
FILES = {
    f"bank/{file}.py": text.format(name)
    for name in ("people", "orders")
    for file, text in ((name, TOPIC), (f"{name}_now", TABLE))
}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return load(written(tmp_path, FILES))


def at(minute: int) -> datetime:
    return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)


def captured(lake: Lake, registry: Registry, name: str, number: int, since: int, marks: dict[int, int]) -> None:
    """A snapshot, and marks after it: place in the log -> minute. The table has taken all of it."""
    topic, table = registry.topics[f"bank.{name}"], registry.find_table(f"{name}_now")
    lake.ensure(topic.full_name, events_schema(topic), statistics=[topic.event_time])
    rows = [{"id": 1, "cdc_op": "snapshot", "cdc_commit_lsn": since, "cdc_lsn": 0, "cdc_at": at(0)}]
    rows += [{"cdc_op": "mark", "cdc_commit_lsn": lsn, "cdc_lsn": lsn, "cdc_at": at(n)} for lsn, n in marks.items()]
    events = pa.Table.from_pylist([{"_offset": 0, "cdc_snapshot": number, **row} for row in rows], events_schema(topic))
    write_deltalake(lake.uri(topic.full_name), events, mode="append")
    Checkpoint.of_table(lake.settings, table).take(FeedPosition(0, [lake.version(topic.full_name) + 1]))


def through(lake: Lake, registry: Registry) -> int:
    return complete_through(lake, registry, [registry.find_table(f"{name}_now") for name in ("people", "orders")]).lsn


def test_the_newest_mark_of_all_tables_is_taken(lake: Lake, registry: Registry) -> None:
    captured(lake, registry, "people", 1, 10, {20: 1, 30: 2, 40: 3})
    captured(lake, registry, "orders", 1, 5, {20: 1, 30: 2})
    assert through(lake, registry) == 30


def test_a_mark_before_a_snapshot_of_one_table_is_not_asked(lake: Lake, registry: Registry) -> None:
    captured(lake, registry, "people", 1, 10, {20: 1, 30: 2})
    captured(lake, registry, "orders", 1, 25, {50: 4})
    with pytest.raises(CaptureFailed, match="have met no mark in common since their snapshots"):
        through(lake, registry)
    captured(lake, registry, "people", 1, 10, {50: 4, 60: 5})
    assert through(lake, registry) == 50


def test_a_mark_beyond_what_others_had_read_is_not_taken(lake: Lake, registry: Registry) -> None:
    for name in ("people", "orders"):
        captured(lake, registry, name, 1, 10, {20: 1})
    topic, table = registry.topics["bank.people"], registry.find_table("people_now")
    older = lake.version(topic.full_name)
    for name in ("people", "orders"):
        captured(lake, registry, name, 1, 10, {30: 2})
    lake.ensure(table.full_name, pa.schema([("id", pa.int64())]), statistics=[])
    Checkpoint.of_table(lake.settings, table).take(FeedPosition(1, [lake.version(topic.full_name) + 1], 0))
    assert through(lake, registry) == 30
    info = {"run": "backfill-1", "inputs": {topic.full_name: older}}
    Writer(lake, table.full_name).append(pa.table({"id": [1]}), CommitTag(app="refresh", version=1, info=info))
    assert through(lake, registry) == 20


def test_marks_at_one_place_of_two_logs_are_not_the_same(lake: Lake, registry: Registry) -> None:
    """The database was restored and wrote on, beyond the places where its log had been."""
    captured(lake, registry, "people", 1, 10, {80: 1, 100: 2})
    captured(lake, registry, "orders", 2, 90, {100: 9, 120: 10})
    with pytest.raises(CaptureFailed, match="have met no mark in common since their snapshots"):
        through(lake, registry)
