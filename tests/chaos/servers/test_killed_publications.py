"""The Spark server, killed where a replay or a promotion publishes: all is there or nothing, and a retry ends it."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import rewrites
from tests.chaos import test_killed_server as killed_server
from tests.harness.tiers import this_run
from tests.late_reading import platform
from tests.support.crashes import stepped
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.plan.rebuild_table import rebuild_in_shadow
from twofold.batch.rewrite import replay
from twofold.batch.rewrite.promotion import Promotion
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.errors import SparkUnreachable
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold.streaming.rebuild.reingest import reingest
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.shadow_lake import shadow
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = this_run.kills or 1
SEED = this_run.seed
HOURS = "plant.hours"
STEPS = [(Writer, "_commit"), (Ledgers, "record_corrections"), (Ledgers, "record_run")]

pytestmark = [
    pytest.mark.prove,
    pytest.mark.kills,
    pytest.mark.platform,
    pytest.mark.spark,
    pytest.mark.timeout(1_200 + 120 * KILLS),
]


def promote(world: World) -> None:
    """Publish what lies in the shadow of the hours."""
    live, table = platform(world), world.registry.find_table(HOURS)
    rewrites.promote(Promotion(live, shadow(live, table), table))


@pytest.fixture(scope="module")
def rebuilt(spark: SparkSession, misread: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The damaged home with the hours, its one table, rebuilt in the shadow; every write is large enough for Spark."""
    home, declared = tmp_path_factory.mktemp("rebuilt") / "home", misread.registry
    world = misread.copied_to(replace(misread.settings, home=home))
    world = replace(world, registry=Registry(declared.topics, {HOURS: declared.tables[HOURS]}))
    rebuild_in_shadow(platform(world), world.registry.find_table(HOURS), world, reingest)  # type: ignore[arg-type]
    return replace(world, settings=replace(world.settings, small_rows=0))


@pytest.mark.parametrize("command", [killed_server.replay_topic, promote], ids=["replay", "promotion"])
def test_a_server_killed_while_a_command_publishes_leaves_all_or_nothing(
    command: Callable[[World], None],
    spark: SparkSession,
    spark_server: Settings,
    rebuilt: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Takes long: the server starts again, cold, after each kill."""
    dice = random.Random(SEED)
    wanted, steps = _undisturbed(rebuilt, tmp_path / "calm", command, monkeypatch)
    interrupted = 0
    for number in range(KILLS):
        # The first dies before it has committed anything, later ones at any step.
        home, last = tmp_path / f"killed-{number}", dice.randrange(steps) if number else 0
        told = f"seed={SEED} number={number} killed at step {last} of {steps}"
        try:
            _run(spark_server, rebuilt, home, _killing(spark_server, command, last), monkeypatch)
        except SparkUnreachable:
            interrupted += 1
        assert _run(spark_server, rebuilt, home, command, monkeypatch) == wanted, told
    assert interrupted, f"seed={SEED}"


def _run(
    spark_server: Settings, world: World, home: Path, command: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> Counter[str]:
    return killed_server._run(spark_server, world, home, command, monkeypatch)[0]


def _undisturbed(
    world: World, home: Path, command: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> tuple[Counter[str], int]:
    """What the command leaves in a home, by the session of this process, and how many steps it has."""
    calm, steps = world.copied_to(replace(world.settings, home=home)), count()
    monkeypatch.setattr(replay, "Log", lambda platform, topics: calm)
    with stepped(lambda: next(steps), STEPS):
        command(calm)
    return killed_server._content(calm), next(steps)


def _killing(spark_server: Settings, command: Callable[[World], None], last: int) -> Callable[[World], None]:
    """The command, whose server is killed at its step of that number."""
    [process] = supervisor.state(spark_server)
    assert process.pid is not None
    pid, numbers = process.pid, count()

    def step() -> None:
        if next(numbers) == last:
            os.kill(pid, signal.SIGKILL)

    def killed(world: World) -> None:
        with stepped(step, STEPS):
            command(world)

    return killed
