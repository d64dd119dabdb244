"""A whole platform with two days of flights in it, which the files of `SHARED` in `tests/conftest.py` use in turn."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.infra.conftest import free_port
from twofold.infra.airflow.airflow_api import Client
from twofold.infra.project.settings import Settings

LONGEST_S = 600
RUN_TIMEOUT_S = 600
"""One Spark job on two busy cores, with what waits before it in the pool."""
ANSWER_AFTER_S = 20.0
"""Airflow fails a task whose answer comes before its scheduler has seen that the process which asked has ended."""
HOURS = "flights.delays_by_hour"
REASON = "the row was damaged by hand"
CLOSED_MS = 1_357_142_400_000  # 2013-01-02T16:00Z


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A running platform that holds real flights, on ports that nobody else has."""
    settings = Settings(
        home=tmp_path_factory.mktemp("platform"),
        kafka_port=free_port(),
        controller_port=free_port(),
        airflow_port=free_port(),
        spark_port=free_port(),
    )
    try:
        twofold(settings, "up", "flights")
        feed(settings, "2013-01-01", "2013-01-03")
        yield settings
    finally:
        twofold(settings, "down")


@pytest.fixture(scope="session")
def airflow(platform: Settings) -> Client:
    """The API of its Airflow."""
    return Client(platform)


def feed(settings: Settings, start: str, end: str) -> None:
    """Put these days of flights into the log."""
    twofold(settings, "traffic", "flights", "--start", start, "--end", end)


def twofold(settings: Settings, *arguments: str) -> None:
    """Run a command, as a person would."""
    environment = {**os.environ, **settings.environment()}
    command = [sys.executable, "-m", "twofold", *arguments]
    said = Path(settings.home) / f"{arguments[0]}.log"
    with said.open("w") as file:
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=file, stderr=file, timeout=LONGEST_S, check=False
        )
    if ran.returncode:
        pytest.fail(f"./twofold {' '.join(arguments)} failed: {said.read_text()[-3000:]}")
