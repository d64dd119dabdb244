"""A database whose tables are captured, for tests that have a broker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from tests import ROOT
from tests.servers import wait_until
from tests.support.sql_script import run_script
from twofold.features.capture import debezium_connector, kafka_connect
from twofold.features.capture.captured_topic import captures
from twofold.infra.kafka import topic_admin
from twofold.infra.postgres import postgres_server
from twofold.infra.process import supervisor
from twofold.infra.process.ports import free_port
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.events.topic_specs import specs


@contextmanager
def captured_database(broker: Settings, registry: Registry, name: str, schema: str) -> Iterator[Settings]:
    """PostgreSQL and Kafka Connect, with a connector for each captured topic; both end with the block.

    Args:
        name: of the home, which no other test of the worker has.
        schema: SQL that makes the tables.
    """
    home = ROOT / ".twofold" / f"test-{os.getpid()}-{name}"
    settings = Settings(
        home=home,
        bootstrap=broker.bootstrap_servers,
        archive=broker.archive_uri,
        database_port=free_port(),
        connect_port=free_port(),
        shuffle_partitions=1,
    )
    try:
        postgres_server.prepare(settings)
        kafka_connect.prepare(settings)
        _remove_topics(broker, {spec.name for spec in specs(registry)})
        supervisor.start(settings, [postgres_server.program(settings), kafka_connect.program(settings)])
        topic_admin.ensure_topics(settings, specs(registry))
        postgres_server.wait_ready(settings)
        run_script(settings, schema)
        kafka_connect.wait_ready(settings)
        for capture in captures(registry):
            debezium_connector.ensure(settings, capture)
        yield settings
    finally:
        supervisor.stop(settings)
        shutil.rmtree(home, ignore_errors=True)


def _remove_topics(broker: Settings, names: set[str]) -> None:
    """Remove these topics, and what Connect knew, of another database that this worker had."""
    with topic_admin.reach(broker) as admin:
        there = [name for name in admin.list_topics() if name in names or name.startswith("_connect_")]
        if there:
            admin.delete_topics(there)
            wait_until(lambda: not {*there} & {*admin.list_topics()})
