"""Streams and reconciles that are killed at any point leave the same tables and the same ledger as if they were not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import pytest

from infra.settings import ROOT, Settings
from tables.lake import QUARANTINE
from tables.registry import load
from tables.scope import from_epoch_ms
from tests.chaos.worker import parts, values, work
from tests.fold import assert_ledger_explains
from tests.fuzz.cases import Sent
from tests.fuzz.oracle import Oracle, judged
from tests.worlds import World
from traffic.imperfections import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("CHAOS_KILLS", "5"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1_000_000)
KILLED = 128 + signal.SIGKILL
LEG_TIMEOUT_S = 300
QUICK_START = "-XX:TieredStopAtLevel=1"
"""A JVM that is killed after seconds gains nothing from the slow compiler."""
FEW = ["flights.delays_by_hour", "flights.flights", "flights.carrier_days", "flights.plane_days"]
"""Windows, a join, what follows a table, sessions: enough for a short run; a long one takes every table."""

pytestmark = [pytest.mark.platform, pytest.mark.spark, pytest.mark.timeout(300 + 120 * KILLS)]


def test_tables_and_ledger_are_right_after_kills_at_random_points(spark: SparkSession, settings: Settings) -> None:
    settings = replace(settings, max_files=1)
    tables = [t.full_name for t in load().in_order("flights") if KILLS > 5 or t.full_name in FEW]
    print(f"CHAOS_SEED={SEED} CHAOS_KILLS={KILLS}")
    for leg in range(KILLS):
        run_until_killed(settings, leg, tables)
    world = World(spark, settings)
    work(world, KILLS, tables)
    assert [o for o in world.reconcile(tables) if o.unexplained] == []
    assert [o for o in world.reconcile(tables) if o.changed or o.files_written or o.unexplained] == []
    assert_each_record_is_there_once(world)
    assert_tables_are_right(world, tables)
    assert_ledger_explains(world, tables)


def run_until_killed(settings: Settings, leg: int, tables: list[str]) -> None:
    """One process with its own JVM; nothing that it started is left."""
    worker = [sys.executable, "-m", "tests.chaos.worker", str(leg), str(SEED + leg), *tables]
    ran = subprocess.run(
        [sys.executable, "-m", "infra.guard", "--", *worker],
        cwd=ROOT,
        env={**os.environ, **settings.environment(), "JAVA_TOOL_OPTIONS": QUICK_START},
        capture_output=True,
        text=True,
        timeout=LEG_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == KILLED, f"leg {leg} of CHAOS_SEED={SEED}: {ran.stdout[-1000:]}{ran.stderr[-3000:]}"


def assert_each_record_is_there_once(world: World) -> None:
    for topic, sent in _fed().items():
        name = world.registry.find_topic(topic).full_name
        connection = duckdb.connect()
        connection.register("events", world.rows(name).select(["_partition", "_offset"]))
        connection.register("bad", world.rows(name + QUARANTINE).select(["_partition", "_offset"]))
        found = connection.sql("SELECT _offset FROM events UNION ALL SELECT _offset FROM bad ORDER BY 1").fetchall()
        assert [offset for (offset,) in found] == list(range(sent)), name


def assert_tables_are_right(world: World, tables: list[str]) -> None:
    sent = (m for part in parts(KILLS + 1) for m in part if not m.kind.startswith(CORRUPT))
    oracle = Oracle([Sent(0, message.topic.split(".")[1], message.value) for message in sent])
    before = from_epoch_ms(min(ms for name in tables if (ms := world.watermark_ms(name))))
    for name in tables:
        found = judged(world, name, oracle.expected(name, before), before)
        assert found.equal, (name, found)
        assert found.rows > 0, name


def _fed() -> dict[str, int]:
    counts: dict[str, int] = {}
    for part in parts(KILLS + 1):
        for topic, sent in values(part).items():
            counts[topic] = counts.get(topic, 0) + len(sent)
    return counts
