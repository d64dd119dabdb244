"""A Spark session for all tests that need one, and a fresh lake for each test."""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import ROOT, is_test
from tests.late_reading import late_reading
from tests.servers import airflow_alone, broker, log, postgres, spark_server
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import class_options

__all__ = ["airflow_alone", "broker", "late_reading", "log", "postgres", "spark_server"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A worker of xdist is to be as the process that a person starts. For want of a file pyspark takes its main module for a
# run of its own doctests; and the library readline, which pytest imports, hands the size of a terminal on to it.
sys.modules["__main__"].__dict__.setdefault("__file__", __file__)
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
# The root is on the path: a room without `twofold.` would be loaded a second time.
for _room in (ROOT / "src" / "twofold").iterdir():
    sys.modules.update({_room.name: None} if _room.is_dir() else {})  # type: ignore[dict-item]
# Few JVMs of a test live long enough for what the second compiler costs: a third of the CPU time of a short one.
# By itself a JVM that has no second compiler gets 48 MB for code, which a driver of many tables fills.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m")

# How long an example takes says what else the machine does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """A feature that is taken away takes the tests with it that name its modules, wherever they are."""
    if collection_path.suffix != ".py" or not is_test(collection_path.relative_to(ROOT)):
        return None
    named = set(re.findall(r"^from twofold\.features\.(\w+)", collection_path.read_text("utf-8"), re.MULTILINE))
    return True if any(not (ROOT / "features" / name).exists() for name in named) else None


def pytest_collection_finish() -> None:
    """What is there once 6,000 tests are collected stays: the collector need not look through it again each time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Clients of a broker that has stopped go on logging, to a stream that pytest has closed."""
    logging.raiseExceptions = False


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The platform's own session, with one core and one shuffle partition."""
    from twofold.infra.spark.spark_session import session

    home = ROOT / ".twofold" / f"test-{os.getpid()}"
    # A session of a thousand tests fills 1,500m, and then collects its garbage more and more often.
    settings = Settings(home=home, spark_master="local[1]", shuffle_partitions=1, driver_memory="2500m")
    # Of a small heap and one core the threads of G1 take a tenth of the CPU, those of the serial collector a twentieth.
    options = [*class_options(settings), "-XX:-UseG1GC", "-XX:+UseSerialGC"]
    # One task at a time: each of the workers has a session, and the machine two cores.
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("JAVA_TOOL_OPTIONS")  # this one lives as long as its worker
        spark = session(settings, "tests", options)
    # Many tests want a failure, each of which Spark would log with its stack.
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark without compilation, which takes longer than these rows."""
    names = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value or "")


@pytest.fixture
def lake(settings: Settings) -> Lake:
    """A lake without tables."""
    return Lake(settings)
