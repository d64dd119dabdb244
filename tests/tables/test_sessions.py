"""Rows that cover a time: sessions, maintained by the stream and recomputed whole where a record meets them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
TOPIC = '''"""Clicks."""
from twofold import Topic

TOPIC = Topic(schema={"user": "string", "at": "timestamp"}, event_time="at", message_key="user", dedup_keys=["user"])
'''
TABLE = '''"""Visits, which end after half an hour without a click."""
from twofold import F, table


@table(
    primary_key=["user", "began_at"],
    event_time="began_at",
    ends_at="ends_at",
    recompute_by=["user"],
    depends_within="30 minutes",
)
def visits(clicks):
    """One row per visit."""
    return clicks.groupBy("user", F.session_window("at", "30 minutes").alias("visit")).agg(
        F.count("*").alias("clicks")
    ).select("user", F.col("visit.start").alias("began_at"), F.col("visit.end").alias("ends_at"), "clicks")
'''


@pytest.fixture
def world(tmp_path: Path, spark: SparkSession) -> World:
    for name, text in {"clicks": TOPIC, "visits": TABLE}.items():
        file = tmp_path / "declared" / "web" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "declared" / "web" / "__init__.py").write_text('"""A web site."""\n')
    settings = replace(Settings(home=tmp_path / "home"), max_files=1)
    return World(spark, settings, "web", load(tmp_path / "declared"))


def click(world: World, *minutes: float, user: str = "ann") -> None:
    """One micro-batch of clicks at minutes after noon."""
    times = [(NOON + timedelta(minutes=m)).isoformat() for m in minutes]
    world.append({"clicks": [json.dumps({"user": user, "at": at}).encode() for at in times]})
    world.maintain(["visits"])


def visits(world: World, user: str = "ann") -> list[tuple[float, float, int]]:
    """First minute, last minute and clicks of each visit."""
    rows = world.rows("web.visits").to_pylist()
    minute = timedelta(minutes=1)
    return sorted(
        ((r["began_at"] - NOON) / minute, (r["ends_at"] - NOON) / minute - 30, r["clicks"])
        for r in rows
        if r["user"] == user
    )


def test_a_visit_is_shown_early_and_grows(world: World) -> None:
    click(world, 0)
    assert visits(world) == [(0, 0, 1)]
    click(world, 20)
    click(world, 45)
    assert visits(world) == [(0, 45, 3)]


def test_a_click_longer_after_than_the_pause_begins_another_visit(world: World) -> None:
    click(world, 0, 10)
    click(world, 40)  # Spark ends a session after its gap, not with it
    click(world, 71)
    assert visits(world) == [(0, 40, 3), (71, 71, 1)]


def test_a_late_click_joins_the_long_visits_on_both_its_sides(world: World) -> None:
    click(world, *range(0, 120, 20), *range(150, 300, 20))
    assert visits(world) == [(0, 100, 6), (150, 290, 8)]
    click(world, 500, user="bob")
    click(world, 125)
    assert visits(world) == [(0, 290, 15)]
    assert visits(world, "bob") == [(500, 500, 1)]


def test_nothing_is_left_to_correct(world: World) -> None:
    for minutes in [(0, 100), (50, 900), (25, 75), (880, 20), (29.9999, 130)]:
        click(world, *minutes)
    assert [o for o in world.reconcile(["visits"], verify=True) if o.changed or o.unexplained] == []
    assert visits(world) == [(0, 130, 8), (880, 900, 2)]
