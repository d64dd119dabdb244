"""Replays a topic and rebuilds a table, until it kills itself: `python -m tests.chaos.rewriter KIND SEED STEPS`.

The log lies beside the home, as the records that an archive would give again. Whatever a life before this one has left
undone, this one begins as if it were the first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow.parquet as pq

from tests import rewrites
from tests.plant import DAYS_FILE, DOUBLED_HOURS, HOURS, WIDER_HOURS
from tests.support.crashes import Executioner, stepped
from tests.tables.declared import TOPIC_FILE, edited, written
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.plan.rebuild_table import rebuild_in_shadow
from twofold.batch.reconcile import reconcile_tables
from twofold.batch.rewrite import replay
from twofold.batch.rewrite.promotion import Promotion
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session, tune_for_batch_size
from twofold.streaming.ingest.topic_writer import TopicWriter
from twofold.streaming.maintain.table_stream import TableStream
from twofold.streaming.rebuild.reingest import reingest
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.acceptance import is_accepted
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, TABLE = "plant.readings", "plant.hours"
KINDS = {"same": HOURS, "doubled": DOUBLED_HOURS, "wider": WIDER_HOURS}
"""What the table is made anew by: the definition that it has, one of the same columns, one of others."""
STEPS = [
    *((Writer, name) for name in ("_commit", "replace")),
    *((TopicWriter, name) for name in ("take", "take_frame")),
    *((Ledgers, name) for name in ("unrecorded_runs", "record_corrections", "record_run")),
    *((Promotion, name) for name in ("settle", "promote")),
    (TableStream, "_note"),
]


def declared(settings: Settings, kind: str) -> Registry:
    """The readings, their hours by this definition, and what follows the hours."""
    topic = edited(TOPIC_FILE, "import Topic\n", "import Topic\nfrom twofold.quality.rules import between\n")
    topic = edited(topic, 'dedup_keys=["sensor"],', 'dedup_keys=["sensor"],\n    checks=[between("value", 0, 100)],')
    texts = {"readings": topic, "hours": KINDS[kind], "days": DAYS_FILE}
    folder = settings.home / "declared" / kind
    return load(written(folder, {f"plant/{name}.py": text for name, text in texts.items()}))


def world(spark: SparkSession, settings: Settings, kind: str) -> World:
    """What lies in a home, under a definition."""
    found = World(spark, settings, "plant", declared(settings, kind))
    if _log(settings).exists():
        found.log[TOPIC] = pq.read_table(_log(settings))
    return found


def keep_log(world: World) -> None:
    """Put the log where every life finds it."""
    pq.write_table(world.log[TOPIC], _log(world.settings))


def rewrite(spark: SparkSession, settings: Settings, kind: str) -> list[RunResult]:
    """Replay the topic, make the table anew by the definition, promote it, carry that on; the outcome of each.

    The topic is replayed by the definition that the table has at that time.
    """
    now = world(spark, settings, kind)
    table, topic = now.registry.find_table(TABLE), now.registry.topics[TOPIC]
    then = now if is_accepted(now.lake, table, now.registry) else world(spark, settings, "same")
    with patch.object(replay, "Log", lambda platform, topics: then):
        outcomes = rewrites.replay(Platform(spark, then.lake, then.registry), topic)
    live = Platform(spark, now.lake, now.registry)
    outcomes.append(rewrites.promote(rebuild_in_shadow(live, table, now, reingest)))  # type: ignore[arg-type]
    return outcomes + reconcile_tables(live, live.registry.below([TOPIC]))


def _log(settings: Settings) -> Path:
    return settings.home / "log.parquet"


if __name__ == "__main__":
    kind, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    settings = Settings.from_environment()
    executioner = Executioner(seed, steps)
    spark = session(settings, "chaos")
    tune_for_batch_size(spark, few=True)
    with stepped(executioner.step, STEPS):
        rewrite(spark, settings, kind)
    executioner.end()
