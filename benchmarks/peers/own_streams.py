"""The tables by the platform's own streams, ingest included, in a process of its own; results in its lake."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from benchmarks.peers.engine_process import READY, Task, drain
from infra.settings import Settings
from infra.spark.spark_session import session
from streaming import driver
from streaming.ingest.ingest_query import Ingest
from streaming.maintain.stateful_query import Maintain
from tables.engine.declarations.registry import load
from tables.engine.delta.lake import Lake
from tables.engine.refresh.open_platform import ensure_domain

DOMAIN = "flights"


def drain_topics(task: Task, settings: Settings) -> None:
    """Ingest, then each table, round by round."""
    spark, registry = session(Settings.from_environment(), "peers"), load()

    def fill() -> None:
        lake = Lake(settings)
        Ingest(spark, lake, registry, DOMAIN).start(available_now=True).awaitTermination()
        for name in task.tables:
            stream = Maintain(spark, lake, registry, registry.find_table(name))
            stream.start(available_now=True).awaitTermination()

    drain(task, fill, prepare=lambda: ensure_domain(spark, Lake(settings), registry, DOMAIN))
    spark.stop()


def follow_topics(task: Task, settings: Settings) -> None:
    """The domain's stream driver with these tables, until SIGTERM."""

    def report() -> None:
        while not list(settings.progress.glob(f"{DOMAIN}/*.json")):
            time.sleep(0.2)
        print(READY, flush=True)

    threading.Thread(target=report, daemon=True).start()
    driver.run(settings, DOMAIN, tables=task.tables)


def main() -> None:
    task = Task.from_arguments()
    settings = replace(Settings.from_environment(), home=task.home)
    if task.rounds:
        drain_topics(task, settings)
    else:
        follow_topics(task, settings)


if __name__ == "__main__":
    main()
