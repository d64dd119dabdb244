"""The Spark server, killed at any moment of a command: nothing is half published, and another try succeeds."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests import rewrites
from tests.chaos.final_state import assert_each_transaction_is_there_once
from tests.connect_session import remote
from tests.harness.tiers import this_run
from tests.late_reading import TOPIC, ZERO, platform
from twofold.batch.ledgers.run_ledgers import CORRECTIONS
from twofold.batch.rewrite import replay
from twofold.infra.errors import SparkUnreachable
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_client import find_endpoint, naming_lost_server
from twofold.testing.worlds import World

KILLS = this_run.kills or 1
SEED = this_run.seed
TABLES = [TOPIC, "plant.hours", "plant.kept", "plant.newest"]
OF_ONE_RUN = {"run", "recorded_at", "version", "inputs"}
DONE_BY_THEN = 1.3
"""Times as long as a command takes: some kills come too late for it, and must do nothing."""

pytestmark = [
    pytest.mark.prove,
    pytest.mark.kills,
    pytest.mark.platform,
    pytest.mark.spark,
    pytest.mark.timeout(1_200 + 120 * KILLS),
]


def reconcile(world: World) -> None:
    world.reconcile(world.all_tables)


def backfill(world: World) -> None:
    rewrites.backfill(platform(world), world.registry.find_table("hours"), ZERO)


def replay_topic(world: World) -> None:
    rewrites.replay(platform(world), world.registry.topics[TOPIC])


COMMANDS: list[Callable[[World], None]] = [reconcile, backfill, replay_topic]


def test_a_server_killed_at_any_moment_leaves_nothing_half_published(
    spark_server: Settings, misread: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Takes long: the server starts again, cold, after each kill; with one kill the seed says of which command."""
    dice = random.Random(SEED)
    calm: dict[str, tuple[Counter[str], float]] = {}
    interrupted = 0
    for number in range(KILLS):
        command = COMMANDS[(SEED + number) % len(COMMANDS)]
        if command.__name__ not in calm:
            _run(spark_server, misread, tmp_path / f"warm-{number}", command, monkeypatch)
            calm[command.__name__] = _run(spark_server, misread, tmp_path / f"calm-{number}", command, monkeypatch)
        wanted, took_s = calm[command.__name__]
        home, after_s = tmp_path / f"killed-{number}", dice.uniform(0, DONE_BY_THEN * took_s)
        try:
            _run(spark_server, misread, home, command, monkeypatch, kill_after_s=after_s)
        except SparkUnreachable:
            interrupted += 1
        told = f"{command.__name__} seed={SEED} number={number} killed after {after_s:.2f} of {took_s:.2f} s"
        for _ in range(2):
            assert _run(spark_server, misread, home, command, monkeypatch)[0] == wanted, told
    print(f"interrupted {interrupted} of {KILLS}")
    assert interrupted or KILLS < 5


def _run(
    spark_server: Settings,
    misread: World,
    home: Path,
    command: Callable[[World], None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    kill_after_s: float | None = None,
) -> tuple[Counter[str], float]:
    """Run a command on a home as a client of the server.

    Args:
        kill_after_s: so long after the command began its server is killed, though the command may be done by then.

    Returns:
        What the home holds then, and seconds that the command took.

    Raises:
        SparkUnreachable: the server ended meanwhile.
    """
    if not home.exists():
        shutil.copytree(misread.settings.home, home)
    settings = replace(misread.settings, home=home)
    endpoint = find_endpoint(spark_server)
    assert endpoint is not None
    with naming_lost_server(), remote(endpoint, settings) as session:
        world = World(session, settings, "plant", misread.registry, dict(misread.log))
        monkeypatch.setattr(replay, "Log", lambda platform, topics: world)
        began = time.monotonic()
        with _killed(spark_server, kill_after_s):
            command(world)
            took_s = time.monotonic() - began
    assert_each_transaction_is_there_once(world.lake, world.lake.names())
    return _content(world), took_s


@contextmanager
def _killed(spark_server: Settings, after_s: float | None) -> Iterator[None]:
    """Kill the server that long after the block began; the block does not end before."""
    if after_s is None:
        yield
        return
    [process] = supervisor.state(spark_server)
    assert process.pid is not None
    killer = threading.Timer(after_s, os.kill, (process.pid, signal.SIGKILL))
    killer.start()
    try:
        yield
    finally:
        killer.join()


def _content(world: World) -> Counter[str]:
    """Every row of the tables and of the ledger of corrections, without what names a run."""
    found: Counter[str] = Counter()
    for name in [*TABLES, CORRECTIONS]:
        rows = pa.table(world.lake.open(name).scan())
        kept = rows.drop_columns([c for c in rows.column_names if c in OF_ONE_RUN])
        found.update(f"{name} {row!r}" for row in kept.to_pylist())
    return found
