"""A broker of its own for a benchmark, stopped when the benchmark ends."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from infra import broker, supervisor
from infra.settings import ROOT, Settings
from infra.topics import ensure_topics
from tables.registry import load
from tables.topics import specs


@contextmanager
def platform(name: str) -> Iterator[Settings]:
    """Settings of a fresh home whose broker runs and holds the declared topics."""
    home = ROOT / ".twofold" / f"benchmark-{name}-{os.getpid()}"
    kafka, controller = _free_ports(2)
    settings = Settings(home=home, kafka_port=kafka, controller_port=controller, driver_memory="3g")
    try:
        broker.prepare(settings)
        supervisor.start(settings, [broker.program(settings)])
        broker.wait_ready(settings)
        ensure_topics(settings, specs(load()))
        yield settings
    finally:
        supervisor.stop(settings)
        shutil.rmtree(home, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in sockets]
    finally:
        for s in sockets:
            s.close()
