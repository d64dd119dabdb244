"""The log of seven records that audits and selections of offsets look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.batch.audit.two_copies import ingested
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def seven_records(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """What `TwoCopies` is of; who changes it works on a copy."""
    return ingested(spark, tmp_path_factory.mktemp("seven"))
