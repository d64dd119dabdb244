"""A device with a wrong clock changes no other result; its own times follow the receiver's clock."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tables.declared import written
from twofold.tables.declare.metadata_columns import OFFSET
from twofold.tables.declare.registry import load
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.spark

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FILES = {
    "plant/readings.py": '''
"""Readings of meters."""
from twofold import DeviceClock, Topic

TOPIC = Topic(
    schema={"meter": "string", "read_at": "timestamp", "sent_at": "timestamp", "received_at": "timestamp"},
    event_time="at",
    clock=DeviceClock(event="read_at", sent="sent_at", received="received_at", bound="2 hours"),
    message_key="meter",
    dedup_keys=["meter"],
)
''',
    "plant/hours.py": '''
"""Readings of each meter and hour."""
from twofold import F, table


@table(
    primary_key=["meter", "hour"],
    event_time="hour",
    watermark="30 minutes",
    closes_at="closes_at",
    recompute_by=["meter"],
    depends_within="1 hour",
)
def hours(readings):
    """One row per meter and hour."""
    return (
        readings.groupBy("meter", F.window("at", "1 hour")).agg(F.count("*").alias("readings"))
        .select("meter", F.col("window.start").alias("hour"), F.col("window.end").alias("closes_at"), "readings")
    )
''',
}


@dataclass
class Plant:
    """Two meters; the clock of the second is off by as many minutes as a test says."""

    world: World
    off: float

    def read(self, *readings: tuple[str, float, float] | tuple[str, float, float, float]) -> None:
        """One micro-batch of meter, minute after noon of the reading, minutes until it was sent, minutes on the way."""
        self.world.append({"readings": [self._record(*reading) for reading in readings]})
        self.world.maintain(["hours"])

    def _record(self, meter: str, read: float, kept: float, queued: float = 0) -> bytes:
        off = timedelta(minutes=self.off if meter == "b" else 0)
        at, sent = NOON + timedelta(minutes=read), NOON + timedelta(minutes=read + kept)
        times = {"read_at": at + off, "sent_at": sent + off, "received_at": sent + timedelta(minutes=queued, seconds=1)}
        return json.dumps({"meter": meter} | {name: time.isoformat() for name, time in times.items()}).encode()

    def hours(self, meter: str) -> dict[float, int]:
        """Hour after noon -> readings."""
        rows = self.world.rows("plant.hours").to_pylist()
        return {(r["hour"] - NOON) / timedelta(hours=1): r["readings"] for r in rows if r["meter"] == meter}


def plant(spark: SparkSession, settings: Settings, folder: Path, off: float) -> Plant:
    return Plant(World(spark, settings, "plant", load(written(folder, FILES))), off)


@pytest.mark.parametrize("off", [115.0, -115.0])
def test_what_a_clock_is_off_by_drops_out(spark: SparkSession, settings: Settings, tmp_path: Path, off: float) -> None:
    meters = plant(spark, settings, tmp_path / "declared", off)
    meters.read(("a", 10, 0), ("b", 20, 0), ("b", 30, 3 * 60))
    meters.read(("b", 95, 0), ("a", 100, 0))
    meters.read(("a", 20, 0))  # its hour closed at 12:30
    watermark = NOON + timedelta(minutes=70, seconds=1)
    assert meters.world.watermark_ms("hours") == watermark.timestamp() * 1_000
    assert (meters.hours("a"), meters.hours("b")) == ({0: 1, 1: 1}, {0: 2, 1: 1})
    assert [o.changed for o in meters.world.reconcile(["hours"])] == [1]
    assert (meters.hours("a"), meters.hours("b")) == ({0: 2, 1: 1}, {0: 2, 1: 1})


@pytest.mark.parametrize("years", [50, -50])
def test_a_clock_beyond_correction_changes_no_other_result(
    spark: SparkSession, settings: Settings, tmp_path: Path, years: int
) -> None:
    meters = plant(spark, settings, tmp_path / "declared", years * 365 * 24 * 60)
    meters.read(("a", 10, 0), ("b", 20, 0))
    meters.read(("b", 25, 0), ("a", 15, 0))
    meters.read(("a", 100, 0), ("b", 100, 0))
    meters.read(("a", 20, 0))
    assert meters.world.watermark_ms("hours") == (NOON + timedelta(minutes=70, seconds=1)).timestamp() * 1_000
    assert meters.hours("a") == {0: 2, 1: 1}
    meters.world.reconcile(["hours"])
    assert meters.hours("a") == {0: 3, 1: 1}
    quarantined = sorted(meters.world.rows("plant.readings_quarantine")[OFFSET].to_pylist())
    assert quarantined == ([1, 2, 5] if years > 0 else [])


def test_a_reading_that_was_sent_twice_counts_once(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    meters = plant(spark, settings, tmp_path / "declared", 115)
    meters.read(("b", 20, 0), ("b", 20, 7))
    meters.read(("b", 20, 12.5), ("a", 21, 0))
    meters.read(("a", 100, 0))
    meters.read(("b", 20, 80))  # closed; what comes now is late, and nothing new
    assert (meters.hours("a"), meters.hours("b")) == ({0: 1, 1: 1}, {0: 1})
    assert [(o.touched, o.changed) for o in meters.world.reconcile(["hours"])] == [(1, 0)]


def test_a_copy_that_was_queued_for_hours_is_none_for_a_recomputation(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    meters = plant(spark, settings, tmp_path / "declared", 0)
    meters.read(("b", 5, 0), ("b", 5, 0, 118))  # by the receiver's clock the second is of minute 123
    meters.read(("a", 400, 0))
    meters.read(("b", 170, 0), ("a", 401, 0))
    assert meters.hours("b") == {0: 1}
    meters.world.reconcile(["hours"])
    assert meters.hours("b") == {0: 1, 2: 1}
