"""Fixtures of tests with real servers."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

from infra import broker as kafka
from infra import supervisor, topics
from infra.settings import ROOT, Settings
from tables.registry import load
from tables.topics import specs
from tests.infra.conftest import free_port
from tests.platform.airflow import airflow, platform

__all__ = ["airflow", "platform"]

_numbers = count(1)


def wait_until(condition: Callable[[], object], timeout_s: float = 300) -> None:
    """Return when the condition holds, looked at twice a second."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def broker() -> Iterator[Settings]:
    """Settings of a real broker under a supervisor of its own."""
    home = ROOT / ".twofold" / f"test-{os.getpid()}-broker"
    settings = Settings(home=home, kafka_port=free_port(), controller_port=free_port(), shuffle_partitions=1)
    try:
        kafka.prepare(settings)
        supervisor.start(settings, [kafka.program(settings)])
        kafka.wait_ready(settings)
        yield settings
    finally:
        supervisor.stop(settings)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def log(broker: Settings) -> Iterator[Settings]:
    """A home with nothing in it, whose topics on the broker are empty."""
    declared = specs(load(), "flights")
    names = [topic.name for topic in declared]
    with topics.reach(broker) as admin:
        there = list(topics.offsets(broker, names))
        if there:
            admin.delete_topics(there)
    wait_until(lambda: not topics.offsets(broker, names))
    topics.ensure_topics(broker, declared)
    home = broker.home.with_name(f"{broker.home.name}-{next(_numbers)}")
    yield replace(broker, home=home, bootstrap=broker.bootstrap_servers)
    shutil.rmtree(home, ignore_errors=True)
