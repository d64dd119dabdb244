"""A Spark session for all tests that need one, a fresh lake for each test, and the order of the files."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.settings import ROOT, Settings
from tables.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A worker of xdist is to be as the process that a person starts. For want of a file pyspark takes its main module for a
# run of its own doctests; and the library readline, which pytest imports, hands the size of a terminal on to it.
sys.modules["__main__"].__dict__.setdefault("__file__", __file__)
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that workers, which take one after the other, end at the same time."""
    items.sort(key=lambda item: item.path.parent.name not in ("platform", "chaos"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The platform's own session, with one shuffle partition."""
    from infra.spark.session import session

    home = ROOT / ".twofold" / f"test-{os.getpid()}"
    spark = session(Settings(home=home, shuffle_partitions=1), "tests")
    yield spark
    spark.stop()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A home with nothing in it."""
    return Settings(home=tmp_path / "home", shuffle_partitions=1)


@pytest.fixture
def lake(settings: Settings) -> Lake:
    """A lake without tables."""
    return Lake(settings)
