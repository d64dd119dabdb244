"""A running streaming query, and its scheduler pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Running(Protocol):
    """The interface of running work: a streaming query, or an object with the same methods."""

    @property
    def name(self) -> str | None: ...

    @property
    def isActive(self) -> bool: ...

    def exception(self) -> Exception | None: ...

    def stop(self) -> None: ...

    def awaitTermination(self) -> object: ...


def use_pool(spark: SparkSession, name: str) -> None:
    """Names the jobs of this thread and its child threads, and runs them in a fair scheduler pool of that name."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    spark.sparkContext.setJobDescription(name)
