"""The plugin of pytest: it is there where Twofold is installed, and starts Spark when a test first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Starts the platform's session, with one core, for all tests of a run."""
    from twofold.infra.project.settings import Settings
    from twofold.infra.spark.spark_session import class_options, session

    home = tmp_path_factory.mktemp("spark")
    settings = Settings(home=home, spark_master="local[1]", shuffle_partitions=1)
    started = session(settings, "tests", class_options(settings))
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Returns settings with a home of the test, in which there is nothing."""
    from twofold.infra.project.settings import Settings

    return Settings(home=tmp_path / "home", shuffle_partitions=1)


@pytest.fixture
def assert_rows(spark: SparkSession) -> Callable[..., None]:
    """Returns `twofold.testing.assert_rows`, in the session of the run."""
    from twofold.testing import assertions

    return partial(assertions.assert_rows, spark)


@pytest.fixture
def assert_parity(spark: SparkSession, settings: Settings) -> Callable[..., Any]:
    """Returns `twofold.testing.assert_parity`, in the session of the run and a lake of the test."""
    from twofold.testing import assertions

    return partial(assertions.assert_parity, spark, settings)


@pytest.fixture
def assert_events() -> Callable[..., None]:
    """Returns `twofold.testing.assert_events`."""
    from twofold.testing import assertions

    return assertions.assert_events
