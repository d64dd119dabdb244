"""Replays and rebuilds that are killed at any point leave what undisturbed ones leave, and nothing is left to do."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.chaos.final_state import assert_each_transaction_is_there_once
from tests.chaos.rewriter import KINDS, STEPS, TABLE, TOPIC, declared, keep_log, rewrite, world
from tests.harness.tiers import this_run
from tests.plant import reading
from tests.support.crashes import run_until_killed, stepped
from twofold.batch.changelog_check import unexplained_changes
from twofold.batch.ledgers.run_ledgers import CORRECTIONS
from twofold.batch.ledgers.run_result import RUNS
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.shadow_lake import shadow_settings
from twofold.testing.worlds import World
from twofold_archive.format.record_columns import HEADERS_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = this_run.kills or 2
SEED = this_run.seed
KILLS_PER_HOME = min(KILLS, 3)
TABLES = [TABLE, "plant.days"]
WRITTEN_WHEN = {"_late_by_ms"}
"""What a row says of the micro-batch that brought it: in a shadow they are cut anew where a life goes on."""
OF_ONE_RUN = {"run", "recorded_at", "version"}

pytestmark = [
    pytest.mark.prove,
    pytest.mark.kills,
    pytest.mark.platform,
    pytest.mark.spark,
    pytest.mark.timeout(1_200 + 120 * KILLS),
]


@pytest.fixture(scope="module")
def damaged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A home whose decoder once misread records, refused good ones and let bad ones pass; a row is wrong besides."""
    home = tmp_path_factory.mktemp("past")
    settings = Settings(home=home, shuffle_partitions=1, max_offsets=32, small_rows=20)
    made = world(spark, replace(settings, small_rows=50_000), "same")
    for first in (0, 10):
        made.append({TOPIC: _records(first)})
        made.maintain(made.all_tables)
    made.reconcile(made.all_tables)
    _damage(made)
    made.reconcile(made.all_tables)
    DeltaTable(made.lake.uri(TABLE)).update(updates={"total": "total + 1000"}, predicate="sensor = 'a' AND total < 9")
    keep_log(made)
    return settings


def _records(first: int) -> list[bytes]:
    """Ten hours of three sensors, some late by hours, some of which are none."""
    late = {"a": 0.0, "b": 0.5, "c": -4.0}
    good = [
        reading(sensor, first + number + late[sensor] * (number % 5 == 0), (number * 7 + ord(sensor)) % 90)
        for number in range(10)
        for sensor in "abc"
    ]
    return [*good[:9], b"{", *good[9:], reading("a", first + 9.5, 200.0)]


def _damage(made: World) -> None:
    events, quarantine = (DeltaTable(made.lake.uri(name)) for name in (TOPIC, TOPIC + QUARANTINE))
    events.update(updates={"value": "value + 1"}, predicate="_offset % 7 = 1")
    refused = pa.table(events.scan(predicate="_offset >= 10 AND _offset < 16"))
    passed = pa.table(quarantine.scan(predicate="_offset = 31"))
    events.delete("_offset >= 10 AND _offset < 16")
    quarantine.delete("_offset = 31")
    raw = made.log[TOPIC].slice(10, 6)
    columns = {
        "_partition": refused["_partition"],
        "_offset": refused["_offset"],
        "_appended_at": refused["_appended_at"],
        "key": raw["key"],
        "value": raw["value"],
        "headers": pa.nulls(6, HEADERS_TYPE),
        "reasons": pa.array([["a bug"]] * 6),
    }
    write_deltalake(made.lake.uri(TOPIC + QUARANTINE), pa.table(columns), mode="append")
    row = refused.slice(0, 1).to_pylist()[0] | {"_offset": 31, "_appended_at": passed["_appended_at"][0].as_py()}
    write_deltalake(made.lake.uri(TOPIC), pa.Table.from_pylist([row], schema=refused.schema), mode="append")


def copied(home: Settings, to: Path) -> Settings:
    shutil.copytree(home.home, to)
    return replace(home, home=to)


def test_what_was_killed_ends_as_what_was_not(spark: SparkSession, damaged: Settings, tmp_path: Path) -> None:
    """Each life replays a topic and makes a table anew; so does a calm one, and a last one that finds nothing to do."""
    for number in range(-(-KILLS // KILLS_PER_HOME)):
        seed = SEED + number * KILLS_PER_HOME
        dice = random.Random(seed)
        kind, small_rows = dice.choice(sorted(KINDS)), dice.choice([20, 50_000])
        home = replace(damaged, small_rows=small_rows)
        calm, killed = (copied(home, tmp_path / f"{name}-{number}") for name in ("calm", "killed"))
        steps = _count_steps(spark, calm, kind)
        # Of a life that goes on where another died less is left: together they pass all of it, on the average.
        most = 2 * steps // KILLS_PER_HOME
        for life in range(KILLS_PER_HOME):
            run_until_killed(killed, "tests.chaos.rewriter", kind, str(seed + life), str(most))
        rewrite(spark, killed, kind)
        told = f"{kind} small_rows={small_rows} seed={seed}"
        assert content(killed) == content(calm), told
        _assert_nothing_is_left_to_do(spark, killed, kind)
        _assert_runs_are_noted(killed)
        found = world(spark, killed, kind)
        found.maintain(found.all_tables)
        assert [o for o in found.reconcile(found.all_tables, verify=True) if o.unexplained] == [], told
        assert [unexplained_changes(found.lake, found.registry.tables[name]) for name in TABLES] == [0, 0], told


def _count_steps(spark: SparkSession, settings: Settings, kind: str) -> int:
    """Replay and rebuild undisturbed; how many steps that has."""
    steps = count()
    with stepped(lambda: next(steps), STEPS):
        outcomes = rewrite(spark, settings, kind)
    assert {o.table for o in outcomes if o.changed} == {TOPIC, TOPIC + QUARANTINE, *TABLES}
    assert [o.changed > 0 for o in outcomes if o.cause in ("rebuild", "definition")] == [True]
    return next(steps)


def _assert_nothing_is_left_to_do(spark: SparkSession, settings: Settings, kind: str) -> None:
    before = versions(settings)
    again = rewrite(spark, settings, kind)
    assert [(o.changed, o.files_written) for o in again] == [(0, 0)] * len(again)
    assert versions(settings) == before


def _assert_runs_are_noted(settings: Settings) -> None:
    """Each run that changed a table stands in the ledger of runs, once, and no commit was made twice."""
    lake = Lake(settings)
    noted = Counter((row["table"], row["run"]) for row in pa.table(lake.open(RUNS).scan()).to_pylist())
    for name in TABLES:
        runs = {c.info["run"] for c in lake.commits(name, -1, lake.version(name)) if c.changes and "run" in c.info}
        assert {run: noted[name, run] for run in runs} == dict.fromkeys(runs, 1), name
    for either in _lakes(settings):
        assert_each_transaction_is_there_once(either, either.names())


def content(settings: Settings) -> Mapping[str, Counter[str]]:
    """Every row of both lakes: of the ledgers the corrections, without what names the run."""
    live, aside = _lakes(settings)
    rows = {name: _rows(live, name, set()) for name in [TOPIC, TOPIC + QUARANTINE, *TABLES]}
    rows |= {f"shadow {name}": _rows(aside, name, WRITTEN_WHEN) for name in [TOPIC, TOPIC + QUARANTINE, TABLE]}
    return rows | {CORRECTIONS: _rows(live, CORRECTIONS, OF_ONE_RUN)}


def versions(settings: Settings) -> Mapping[str, Mapping[str, int]]:
    return {str(lake.settings.home): {name: lake.version(name) for name in lake.names()} for lake in _lakes(settings)}


def _lakes(settings: Settings) -> tuple[Lake, Lake]:
    return Lake(settings), Lake(shadow_settings(settings, declared(settings, "same").tables[TABLE]))


def _rows(lake: Lake, name: str, left_out: set[str]) -> Counter[str]:
    rows = pa.table(lake.open(name).scan())
    return Counter(map(repr, rows.drop_columns([c for c in rows.column_names if c in left_out]).to_pylist()))
