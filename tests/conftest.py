"""A Spark session for all tests that need one, a fresh lake for each test, and what runs beside what."""

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker have all that uses the Spark session of its process, so that there is one; others take files."""
    for item in items:
        alone = "spark" not in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group(str(item.path) if alone else "spark"))


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
