"""The tables by the platform's own streams, ingest included, in a process of its own; results in its lake."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from peers.domains import domain_of, registry_of
from peers.engine_process import READY, Task, drain
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.streaming import driver
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.refresh.open_platform import Platform, ensure_domain


def drain_topics(task: Task, settings: Settings) -> None:
    """Ingest, then each table, round by round."""
    spark, registry = session(Settings.from_environment(), "peers"), registry_of(task.tables)
    domain = domain_of(task.tables[0])

    def fill() -> None:
        lake = Lake(settings)
        Ingest(spark, lake, registry, domain).start(available_now=True).awaitTermination()
        for name in task.tables:
            stream = driver.table_query(Platform(spark, lake, registry), registry.find_table(name))
            stream.start(available_now=True).awaitTermination()

    drain(task, fill, prepare=lambda: ensure_domain(spark, Lake(settings), registry, domain))
    spark.stop()


def follow_topics(task: Task, settings: Settings) -> None:
    """The domain's stream driver with these tables, until SIGTERM; of the platform's own domains only."""
    domain = domain_of(task.tables[0])

    def report() -> None:
        while not list(settings.progress.glob(f"{domain}/*.json")):
            time.sleep(0.2)
        print(READY, flush=True)

    threading.Thread(target=report, daemon=True).start()
    driver.run(settings, domain, tables=task.tables)


def main() -> None:
    task = Task.from_arguments()
    settings = replace(Settings.from_environment(), home=task.home)
    if task.rounds:
        drain_topics(task, settings)
    else:
        follow_topics(task, settings)


if __name__ == "__main__":
    main()
