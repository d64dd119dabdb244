"""A broker, a stream driver and traffic of its own for a benchmark, stopped when the benchmark ends."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta

import psutil

from tests import ROOT
from twofold.infra.kafka import broker
from twofold.infra.kafka.topic_admin import ensure_topics
from twofold.infra.process import supervisor
from twofold.infra.process.run_end import end_all_with_this_process
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events.topic_specs import specs

RECORDS_PER_DAY = 1_900
"""Of all topics of `flights`, on the average."""


@contextmanager
def platform(name: str) -> Iterator[Settings]:
    """Settings of a fresh home whose broker runs and holds the declared topics."""
    end_all_with_this_process()
    home = ROOT / ".twofold" / f"benchmark-{name}-{os.getpid()}"
    kafka, controller = free_ports(2)
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


def broker_process(settings: Settings) -> psutil.Process:
    """The broker's own process."""
    return psutil.Process(next(process.pid for process in supervisor.state(settings) if process.name == "broker"))


def cpu_s(process: psutil.Process) -> float:
    """Seconds of CPU that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def command(settings: Settings, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """What runs a command of the platform: its arguments and its environment."""
    environment = {**os.environ, **settings.environment(), "PYTHONPATH": str(ROOT)}
    return [sys.executable, "-m", "twofold", *arguments], environment


def traffic(rate: float, first: date, days: int) -> list[str]:
    """The command that sends real flights, with the usual imperfections, `rate` records a second."""
    return [
        *("traffic", "flights", "--json", "--start", str(first), "--end", str(first + timedelta(days=days))),
        *("--speed", str(round(86_400 * rate / RECORDS_PER_DAY))),
    ]


@contextmanager
def driver(settings: Settings, tables: Sequence[str]) -> Iterator[None]:
    """A stream driver of `flights`, from its first micro-batch to the end of the block."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    arguments, environment = command(settings, "stream", "flights", *tables)
    with (settings.logs / "driver.log").open("w") as log:
        process = subprocess.Popen(arguments, env=environment, stdout=log, stderr=log)
        try:
            while not list(settings.progress.glob("flights/*.json")):
                time.sleep(0.5)
                if process.poll() is not None:
                    raise RuntimeError((settings.logs / "driver.log").read_text()[-2_000:])
            yield
        finally:
            process.terminate()
            process.wait(60)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in sockets]
    finally:
        for s in sockets:
            s.close()
