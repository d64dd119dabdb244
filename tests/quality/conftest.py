"""One small Spark session for the tests of the rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from infra.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The platform's session, on one core; stopped after this package, so that the next gets its own."""
    from pyspark.sql import SparkSession

    from infra.spark.session import session

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    settings = Settings(home=tmp_path_factory.mktemp("spark"), spark_master="local[1]", shuffle_partitions=1)
    spark = session(settings, "quality-tests")
    # Rules that fail to compile are tested: Spark would log each with its stack.
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()
