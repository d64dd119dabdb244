"""An idle topic's watermark follows the others, and its later records are late by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.tables.declared import a_topic, written
from twofold.infra.kafka.topic_admin import PartitionOffsets
from twofold.streaming.ingest.idle_topics import Heartbeat, due
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, events_schema, heartbeat
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

MINUTE = 60_000
IDLE = Heartbeat(idle_timeout_ms=10 * MINUTE, newest_ms=5, appended_ms=0)


def awake(newest_ms: int | None, appended_ms: int = 10 * MINUTE) -> Heartbeat:
    return Heartbeat(idle_timeout_ms=None, newest_ms=newest_ms, appended_ms=appended_ms)


@pytest.mark.parametrize(
    ("pulses", "moved"),
    [
        ({}, {}),
        ({"a": IDLE}, {}),
        ({"a": IDLE, "b": awake(70)}, {"a": 70}),
        ({"a": IDLE, "b": awake(70, 10 * MINUTE - 1)}, {}),
        ({"a": replace(IDLE, idle_timeout_ms=None), "b": awake(70)}, {}),
        ({"a": IDLE, "b": awake(70), "c": awake(60)}, {"a": 60}),
        ({"a": IDLE, "b": awake(70), "c": awake(60, 0)}, {"a": 70}),  # silent as well, though it may be so for ever
        ({"a": IDLE, "b": awake(None)}, {}),
        ({"a": IDLE, "b": awake(5)}, {}),
        ({"a": IDLE, "b": awake(4)}, {}),
        ({"a": replace(IDLE, newest_ms=None), "b": awake(70)}, {"a": 70}),  # nothing ever came
        ({"a": replace(IDLE, moved_ms=9 * MINUTE + 1), "b": awake(70)}, {}),
        ({"a": replace(IDLE, moved_ms=9 * MINUTE), "b": awake(70)}, {"a": 70}),
    ],
)
def test_an_idle_topic_follows_the_slowest_that_is_awake(
    pulses: Mapping[str, Heartbeat], moved: dict[str, int]
) -> None:
    assert due(pulses) == moved


def test_a_heartbeat_has_a_time_and_no_place_in_the_log() -> None:
    topic = a_topic()
    row = heartbeat(topic, 1_500, 2_500, 1_200)
    assert row.schema == events_schema(topic)
    assert row.to_pylist() == [
        {
            **dict.fromkeys(row.column_names),
            "read_at": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
            "_appended_at": datetime(1970, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC),
            "_late_by_ms": -300,
            "_replayed": False,
        }
    ]
    assert heartbeat(topic, 1_500, 2_500)[LATE_BY_MS].to_pylist() == [None]


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
TOPIC = """
from twofold.tables.declare.table import Topic

TOPIC = Topic(
    schema={"id": "string", "at": "timestamp"},
    event_time="at",
    message_key="id",
    dedup_keys=["id"],
    partitions=1,
    idle_timeout=%r,
)
"""
TABLE = '''
"""How often doors and lamps were used in each hour."""
from twofold import F, table


@table(
    primary_key=["hour"],
    event_time="hour",
    watermark="10 minutes",
    closes_at="closes_at",
    recompute_by=[],
    depends_within="1 hour",
)
def uses(doors, lamps):
    """One row per hour."""
    return (
        doors.unionByName(lamps).groupBy(F.window("at", "1 hour")).agg(F.count("*").alias("uses"))
        .select(F.col("window.start").alias("hour"), F.col("window.end").alias("closes_at"), "uses")
    )
'''


class House:
    """Doors and lamps, and the hours in which they were used; a topic's record number n is its offset."""

    def __init__(self, spark: SparkSession, settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        files = {
            "house/doors.py": f'"""Doors."""{TOPIC % "5 minutes"}',
            "house/lamps.py": f'"""Lamps."""{TOPIC % None}',
            "house/uses.py": TABLE,
        }
        self.world = World(spark, settings, "house", load(written(folder, files)))
        self.ingest = Ingest(spark, self.world.lake, self.world.registry, "house")
        self.latest = {"house.doors": 0, "house.lamps": 0}
        self.waiting = 0
        monkeypatch.setattr("twofold.infra.kafka.topic_admin.offsets", self._offsets)

    def _offsets(self, _: Settings, names: list[str]) -> dict[str, dict[int, PartitionOffsets]]:
        return {
            name: {
                0: PartitionOffsets(earliest=0, earliest_local=0, latest=self.latest[name] + self.waiting, tiered=None)
            }
            for name in names
        }

    def use(self, what: str, appended: float, *at: float) -> None:
        """One micro-batch with records of a topic, times in minutes after noon; of the append after three."""
        name, now = f"house.{what}", NOON + timedelta(hours=3, minutes=appended)
        start = self.latest[name]
        self.latest[name] = end = start + len(at)
        records = [{"id": str(n), "at": (NOON + timedelta(minutes=m)).isoformat()} for n, m in enumerate(at, start)]
        columns = [
            pa.array([0] * len(at), pa.int32()),
            pa.array(range(start, end), pa.int64()),
            pa.array([now] * len(at), pa.timestamp("us", tz="UTC")),
            pa.nulls(len(at), pa.binary()),
            pa.array([json.dumps(record).encode() for record in records]),
        ]
        self.ingest._feeds[name].take(pa.table(columns, schema=RAW_SCHEMA), {0: (start, end)})
        self.ingest._move_idle()

    def heartbeats(self, what: str) -> list[float]:
        rows = self.world.rows(f"house.{what}")
        times = rows["at"].filter(pc.is_null(rows[OFFSET])).to_pylist()
        return sorted((time - NOON) / timedelta(minutes=1) for time in times)

    def watermark(self) -> float | None:
        """Minutes after noon, as the stream of the table has it."""
        self.world.maintain(["uses"])
        ms = self.world.watermark_ms("uses")
        return None if ms is None else (ms - NOON.timestamp() * 1_000) / MINUTE

    def uses(self) -> dict[float, int]:
        rows = self.world.rows("house.uses").to_pylist()
        return {(row["hour"] - NOON) / timedelta(minutes=1): row["uses"] for row in rows}


@pytest.fixture
def house(spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    return House(spark, settings, tmp_path / "declared", monkeypatch)


@pytest.mark.spark
def test_tables_wait_for_an_idle_input_no_longer_than_declared(house: House) -> None:
    house.use("doors", 1, 1)
    house.use("lamps", 1, 1)
    house.use("lamps", 5, 100)
    assert house.watermark() == -9  # the doors hold it
    house.use("lamps", 6, 120)
    assert house.heartbeats("doors") == [120]
    assert house.watermark() == 110
    assert house.uses() == {0: 2, 60: 1, 120: 1}


@pytest.mark.spark
def test_what_a_heartbeat_made_late_is_corrected(house: House) -> None:
    house.use("doors", 1, 1)
    house.use("lamps", 6, 120)
    assert house.watermark() == 110
    house.use("doors", 7, 30)  # its hour has closed
    doors = house.world.rows("house.doors").select([OFFSET, LATE_BY_MS]).sort_by(OFFSET)
    assert doors[LATE_BY_MS].to_pylist() == [None, 90 * MINUTE, -119 * MINUTE]
    house.watermark()
    assert house.uses() == {0: 1, 120: 1}
    assert [o.changed for o in house.world.reconcile(["uses"])] == [1]
    assert house.uses() == {0: 2, 120: 1}


@pytest.mark.spark
def test_a_topic_whose_records_wait_on_the_broker_is_not_idle(house: House) -> None:
    house.use("doors", 1, 1)
    house.waiting = 1
    house.use("lamps", 6, 120)
    assert house.heartbeats("doors") == []
    house.waiting = 0
    house.use("lamps", 6.6, 121)
    assert house.heartbeats("doors") == [121]


@pytest.mark.spark
def test_a_topic_that_never_had_a_record_goes_on_with_the_others(house: House) -> None:
    house.use("lamps", 1, 1)
    assert house.watermark() is None
    house.use("lamps", 6, 120)
    assert house.watermark() == 110


@pytest.mark.spark
def test_a_restarted_ingest_goes_on_from_the_heartbeat(house: House) -> None:
    house.use("doors", 1, 1)
    house.use("lamps", 6, 120)
    topic = house.world.registry.find_topic("doors")
    before = read_ingested_offsets(house.world.lake, topic)
    assert (before.ends, before.newest_ms) == ({0: 1}, int((NOON + timedelta(minutes=120)).timestamp() * 1_000))
    house.ingest = Ingest(house.world.spark, house.world.lake, house.world.registry, "house")
    house.use("doors", 7, 130)
    house.use("doors", 7, 140)
    doors = house.world.rows("house.doors").select([OFFSET, LATE_BY_MS]).sort_by(OFFSET)
    assert doors[LATE_BY_MS].to_pylist() == [None, -10 * MINUTE, -10 * MINUTE, -119 * MINUTE]
    after = read_ingested_offsets(house.world.lake, topic)
    assert (after.ends, after.number) == ({0: 3}, before.number + 2)


@pytest.mark.spark
def test_a_record_that_claims_the_future_closes_nothing(house: House) -> None:
    house.use("doors", 1, 1)
    house.use("lamps", 1, 1)
    house.use("lamps", 2, 242.1)  # 60.1 minutes beyond its append
    house.use("doors", 2, 242)
    assert house.watermark() == -9
    house.use("lamps", 3, 20)
    house.watermark()
    assert house.uses() == {0: 3, 240: 1}
    assert house.world.rows("house.lamps_quarantine")[OFFSET].to_pylist() == [1]
