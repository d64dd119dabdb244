"""The bank: its database, captured by Debezium in Kafka Connect, and the lake with its copies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, TopicPartition

from tests import ROOT
from tests.servers import wait_until
from tests.support.bank_declarations import FILES, MARKS, SCHEMA
from tests.support.captured_database import captured_database
from tests.support.sql_script import run_script
from tests.tables.declared import written
from twofold.batch.audit.hash_buckets import Turn
from twofold.features.capture import debezium_connector, kafka_connect
from twofold.features.capture.captured_topic import captures
from twofold.features.capture.lost_changes import changes_fault
from twofold.features.capture.operate import recapture
from twofold.features.capture.operate.database_audit import ComparedTable, compare_with_database
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.infra.postgres import postgres_server
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import Registry, load
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Bank:
    """The captured database, its topics and its lake.

    Attributes:
        captures: of each topic, by its name in the domain.
    """

    def __init__(self, spark: SparkSession, settings: Settings, registry: Registry, folder: Path) -> None:
        self.settings, self.registry, self.folder = settings, registry, folder
        self.world = World(spark, settings, domain="bank", registry=registry)
        self.lake = self.world.lake
        self.captures = {capture.topic.removeprefix("bank."): capture for capture in captures(registry)}
        self._marks = 0

    def run(self, *script: str) -> list[tuple[Any, ...]]:
        return run_script(self.settings, "\n".join(script))

    def rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.world.rows(f"bank.{name}").to_pylist()
        return rows

    def fault(self, name: str) -> str:
        """What `twofold status` reports of a capture."""
        return debezium_connector.state(self.settings, self.captures[name]).fault

    def lost(self, name: str) -> str:
        return changes_fault(self.lake, f"bank.{name}")

    def wait_captured(self, *topics: str) -> None:
        """Return when these topics have all that was committed: a row of its own comes last."""
        self._marks -= 1
        self.run(*(MARKS[topic][0].format(self._marks) for topic in topics))
        for topic in topics:
            self._wait_last(f"bank.{topic}", MARKS[topic][1].format(self._marks).encode())

    def _wait_last(self, topic: str, key: bytes) -> None:
        with self._reading(topic) as (consumer, partition):

            def is_there() -> bool:
                end = consumer.end_offsets([partition])[partition]
                consumer.seek(partition, max(0, end - 5))  # marks may have come since
                while consumer.position(partition) < end:
                    found = consumer.poll(timeout_ms=500)
                    if not found or key in [record.key for records in found.values() for record in records]:
                        return bool(found)
                return False

            wait_until(is_there)

    def values(self, topic: str) -> list[bytes]:
        """The values of all records."""
        with self._reading(topic) as (consumer, partition):
            consumer.seek_to_beginning(partition)
            end, found = consumer.end_offsets([partition])[partition], list[bytes]()
            while consumer.position(partition) < end:
                found += [record.value or b"" for record in consumer.poll(timeout_ms=500).get(partition, [])]
        return found

    @contextlib.contextmanager
    def _reading(self, topic: str) -> Iterator[tuple[KafkaConsumer, TopicPartition]]:
        consumer = KafkaConsumer(bootstrap_servers=self.settings.bootstrap_servers, enable_auto_commit=False)
        with contextlib.closing(consumer):
            consumer.assign([TopicPartition(topic, 0)])
            yield consumer, TopicPartition(topic, 0)

    def ingest(self) -> None:
        Ingest(self.world.spark, self.lake, self.registry, "bank").start(available_now=True).awaitTermination()

    def take_in(self, *tables: str) -> None:
        """Bring these tables up to date with the log."""
        self.ingest()
        self.world.maintain(tables)

    def audited(self, *topics: str) -> list[ComparedTable]:
        """What an audit finds of captured tables, while the stream takes in their changes."""

        def compared(name: str) -> ComparedTable:
            return compare_with_database(self.lake, self.registry.topics[f"bank.{name}"], self.captures[name], Turn())

        with ThreadPoolExecutor() as pool:
            audits = [pool.submit(compared, name) for name in topics]
            while not all(audit.done() for audit in audits):
                self.ingest()
            return [audit.result() for audit in audits]

    def wait_ingested(self, topic: str) -> None:
        """Ingest what comes until the events have a snapshot; marks go on to come meanwhile."""
        with ThreadPoolExecutor() as pool:
            declared = self.registry.topics[f"bank.{topic}"]
            waits = pool.submit(recapture.wait_ingested, self.settings, self.lake, declared)
            while not waits.done():
                self.ingest()
            waits.result()

    def ensure_captured(self) -> None:
        """Return when servers that were killed are back, and every connector runs."""
        postgres_server.wait_ready(self.settings)
        kafka_connect.wait_ready(self.settings)
        for capture in self.captures.values():
            debezium_connector.ensure(self.settings, capture)

    def relaying(self) -> contextlib.AbstractContextManager[Callable[[], None]]:
        """Runs the bank's relay; yields what kills it and starts another one."""
        return relaying(self.settings, "twofold.features.persons.tests.own_relay", str(self.folder), "bank")


@contextlib.contextmanager
def relaying(settings: Settings, module: str, *arguments: str) -> Iterator[Callable[[], None]]:
    """Runs a relay; yields what kills it and starts another one."""
    command, running = [sys.executable, "-m", module, *arguments], list[subprocess.Popen[bytes]]()

    def start() -> None:
        for relay in running:
            relay.kill()
            relay.wait()
        running.append(subprocess.Popen(command, env={**os.environ, **settings.environment()}, cwd=ROOT))

    start()
    try:
        yield start
    finally:
        running[-1].terminate()
        running[-1].wait()


def kill(settings: Settings, program: str) -> None:
    """Kill a server, and return when its next process is there."""
    pid = next(p.pid for p in supervisor.state(settings) if p.name == program)
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: next(p for p in supervisor.state(settings) if p.name == program).pid not in (pid, None))


@contextlib.contextmanager
def captured_bank(broker: Settings, spark: SparkSession, folder: Path) -> Iterator[Bank]:
    """The bank with the rows of its schema, each table captured; both servers end with the block."""
    registry = load(written(folder, FILES))
    with captured_database(broker, registry, "capture", SCHEMA) as settings:
        make_keys(settings)
        yield Bank(spark, settings, registry, folder)
