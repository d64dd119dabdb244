"""A captured bank for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.captured_bank import Bank, captured_bank
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def bank(broker: Settings, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    with captured_bank(broker, spark, tmp_path_factory.mktemp("tables")) as bank:
        yield bank
