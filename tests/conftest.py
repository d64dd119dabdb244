"""A Spark session for all tests that need one, and a fresh lake for each test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.settings import ROOT, Settings
from tables.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The platform's own session, with one shuffle partition."""
    from infra.spark import session

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
