"""A stream driver under the broker's supervisor, and records that are sent to it meanwhile."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta

from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.producer import Summary, run
from twofold.infra.kafka import broker as kafka
from twofold.infra.process import supervisor
from twofold.infra.process.supervisor import ProcessState
from twofold.infra.process.supervisord import Program
from twofold.infra.project.settings import Settings
from twofold.streaming.query import progress

DOMAIN = "flights"
FIRST = date(2013, 1, 1)
MESSY = FaultInjection(duplicate_share=0.05, corrupt_share=0.1)


@contextmanager
def sending(settings: Settings, days: int, seconds: float, imperfections: FaultInjection) -> Iterator[Future[Summary]]:
    """Send days at the speed that takes so many seconds for all; leaving the block ends that early."""
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        sent = pool.submit(
            run,
            settings,
            domain=DOMAIN,
            start=FIRST,
            end=FIRST + timedelta(days=days),
            speed=days * 86_400 / seconds,
            imperfections=imperfections,
            stop=stop,
        )
        try:
            yield sent
        finally:
            stop.set()
    sent.result()


@contextmanager
def live_driver(broker: Settings, settings: Settings, *tables: str) -> Iterator[Callable[[], ProcessState]]:
    """A driver of these tables, or of all, under the broker's supervisor; gives how its process is."""
    programs = [
        kafka.program(broker),
        Program(
            name="stream",
            command=[sys.executable, "-m", "twofold", "stream", DOMAIN, *tables],
            environment=settings.environment(),
            stage=1,
            stop_wait_s=60,
        ),
    ]
    supervisor.start(broker, programs)
    try:
        yield lambda: process(broker, "stream")
    finally:
        supervisor.start(broker, programs[:1])


def process(broker: Settings, name: str) -> ProcessState:
    return next(state for state in supervisor.state(broker) if state.name == name)


def kill(state: ProcessState) -> datetime:
    """Kill -9 a process that runs; the time."""
    assert state.pid
    os.kill(state.pid, signal.SIGKILL)
    return datetime.now(UTC)


def works_since(settings: Settings, instant: datetime, *, tables: bool) -> bool:
    """Whether a micro-batch of ingest, or of a table, ended after it."""
    queries = [p for p in progress.read(settings, DOMAIN) if (p.query != "ingest") == tables]
    return any(p.updated_at > instant and not p.error for p in queries)
