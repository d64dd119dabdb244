"""A domain of sensors in a folder of its own: small enough that a test says every record of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.tables.declared import TABLE_FILE, TOPIC_FILE, edited, written
from twofold.tables.declare.registry import Registry, load

HOURS_FILE = '''\
"""The sum of each sensor's readings by hour."""
from twofold import F, table


@table(
    primary_key=["sensor", "hour"],
    event_time="hour",
    watermark="1 hour",
    closes_at="closes_at",
    recompute_by=["sensor"],
    depends_within="1 hour",
    late="{late}",
)
def {name}(readings):
    hours = readings.where("value < 100").groupBy("sensor", F.window("read_at", "1 hour"))
    return hours.agg(F.sum("value").alias("total"), F.max("value").alias("greatest")).select(
        "sensor", F.col("window.start").alias("hour"), F.col("window.end").alias("closes_at"), "total", "greatest"
    )
'''
HOURS = HOURS_FILE.format(name="hours", late="correct")
WIDER_HOURS = edited(
    edited(HOURS, 'F.max("value").alias("greatest")', 'F.max("value").alias("greatest"), F.count("*").alias("n")'),
    '"total", "greatest"\n',
    '"total", "greatest", "n"\n',
)
DOUBLED_HOURS = edited(HOURS, 'F.sum("value")', '(F.sum("value") * 2)')
DAYS_FILE = '''\
"""The sum of each sensor's hours."""
from twofold import F, table


@table(primary_key=["sensor"], recompute_by=["sensor"])
def days(hours):
    return hours.groupBy("sensor").agg(F.sum("total").alias("total"))
'''
START = datetime(2013, 1, 1, tzinfo=UTC)


def plant(folder: Path, **changed: str) -> Registry:
    """The topic `readings`, and the tables `hours`, `kept` (the same, late ones dropped) and `newest`.

    Args:
        changed: table -> the text of its file instead.
    """
    texts = {
        "readings": TOPIC_FILE,
        "hours": HOURS_FILE.format(name="hours", late="correct"),
        "kept": HOURS_FILE.format(name="kept", late="drop"),
        "newest": TABLE_FILE,
    }
    return load(written(folder, {f"plant/{name}.py": text for name, text in {**texts, **changed}.items()}))


def reading(sensor: str, hour: float, value: float | None) -> bytes:
    """A record, so many hours after the start of 2013."""
    at = START + timedelta(hours=hour)
    return json.dumps({"sensor": sensor, "read_at": at.isoformat(), "value": value}).encode()


def hour(number: float) -> datetime:
    return START + timedelta(hours=number)
