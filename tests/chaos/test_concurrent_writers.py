"""Streams, two reconciles, a compaction and the zombies of each, all at once, end as they would one after the other."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.changelog import assert_ledger_explains
from tests.chaos.final_state import (
    assert_each_record_is_there_once,
    assert_each_transaction_is_there_once,
    assert_tables_are_right,
)
from tests.chaos.worker import parts, values
from tests.chaos.zombies import Zombies
from tests.harness.tiers import this_run
from tests.rewrites import promote
from twofold.batch.ledgers.run_ledgers import CORRECTIONS, EVIDENCE, Ledgers
from twofold.batch.ledgers.run_result import RUNS
from twofold.batch.plan.rebuild_table import rebuild_in_shadow
from twofold.batch.reconcile import Reconcile
from twofold.infra.delta.compaction import compact
from twofold.infra.process.file_locks import exclusive
from twofold.infra.process.polling_thread import PollingThread
from twofold.infra.project.settings import Settings
from twofold.streaming.driver import table_query
from twofold.streaming.rebuild.reingest import reingest
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LEGS = this_run.kills or 4
SEED = this_run.seed
PAUSE_S = 0.3
IS_LONG = this_run.kills > 0
"""Whether tables are rebuilt and promoted, too: each takes as long as all the rest."""
TABLES = ["flights.delays_by_hour", "flights.flights", "flights.carrier_days"]
"""Windows, a join, what follows a table."""

pytestmark = [pytest.mark.prove, pytest.mark.kills, pytest.mark.spark, pytest.mark.timeout(1_200 + 60 * LEGS)]


def test_what_happens_at_once_ends_as_if_in_some_order(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams, reconciles and compactions of three tables go on for as long as four times records come."""
    monkeypatch.setattr("twofold.infra.delta.compaction.TARGET", 2_000)  # so that files are sorted apart, too
    world = World(spark, replace(settings, max_files=1, table_trigger_ms=100), "flights")
    written = [*TABLES, *world.registry.topics, CORRECTIONS, EVIDENCE, RUNS]
    Ledgers(world.lake).ensure()
    zombies = Zombies(random.Random(SEED))
    slow_reconciles = [_reconcile(world, name) for name in TABLES]
    slow_compactions = [world.lake.open(name) for name in TABLES]
    with zombies.left(), _running(world) as queries:
        at_once = [
            lambda: _reconcile_all(world),
            lambda: _reconcile_all(world),
            lambda: _tidy_all(world, written),
            zombies.wake_one,
            *([lambda: _promote(world)] if IS_LONG else []),
        ]
        with _again_and_again(at_once):
            for part in parts(LEGS):
                world.append(values(part))
                time.sleep(PAUSE_S)
            for query in queries:
                query.processAllAvailable()
        for table in slow_compactions:
            _compact(table)
        for reconcile in slow_reconciles:
            reconcile.run(verify=False)
    while zombies.asleep:
        zombies.wake_one()
    world.maintain(TABLES)

    assert {"stream", "refresh", "corrections"} <= set(zombies.fenced)
    assert [o for o in world.reconcile(TABLES, verify=True) if o.unexplained] == []
    assert [o for o in world.reconcile(TABLES) if o.changed or o.files_written] == []
    assert_each_transaction_is_there_once(world.lake, written)
    assert_each_record_is_there_once(world, LEGS)
    assert_tables_are_right(world, TABLES, LEGS)
    assert_ledger_explains(world, TABLES)


@contextmanager
def _running(world: World) -> Iterator[list[StreamingQuery]]:
    """All that keeps the tables fresh, under their domain's lock as a driver holds it; gives the streaming queries."""
    platform = Platform(world.spark, world.lake, world.registry)
    with exclusive(world.settings.driver_lock(world.domain)):
        kept = [table_query(platform, world.registry.find_table(name)) for name in TABLES]
        running = [one.start(available_now=False) for one in kept]
        try:
            yield [query for query in running if not isinstance(query, PollingThread)]
        finally:
            for one in running:
                one.stop()


@contextmanager
def _again_and_again(works: list[Callable[[], None]]) -> Iterator[None]:
    """Do each work over and over, beside the block and the others; the first failure ends the block's test."""
    done = threading.Event()

    def repeat(work: Callable[[], None]) -> None:
        while not done.wait(PAUSE_S):
            work()

    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(repeat, work) for work in works]
        try:
            yield
        finally:
            done.set()
        for future in running:
            future.result()


def _reconcile(world: World, name: str) -> Reconcile:
    """A reconcile that is pinned to what is there now."""
    platform = Platform(world.spark.newSession(), world.lake, world.registry)
    return Reconcile(platform, world.registry.find_table(name))


def _reconcile_all(world: World) -> None:
    for name in TABLES:
        _reconcile(world, name).run(verify=False)


def _promote(world: World) -> None:
    """Rebuild a table from the log so far, and publish it."""
    platform = Platform(world.spark.newSession(), world.lake, world.registry)
    table = world.registry.find_table(random.choice(TABLES))
    promote(rebuild_in_shadow(platform, table, world, reingest))  # type: ignore[arg-type]


def _tidy_all(world: World, names: list[str]) -> None:
    for name in names:
        compact(world.lake, name, world.registry.find_table(name).event_time if name in TABLES else None)


def _compact(table: DeltaTable) -> None:
    """Compact what the table held when it was opened, where others left any of it."""
    from deltalake.exceptions import CommitFailedError

    try:
        table.optimize.compact()
    except CommitFailedError:
        return
