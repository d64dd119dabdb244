"""A running streaming query, and the pool of the scheduler that it runs in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Running(Protocol):
    """Work that goes on by itself: a streaming query, or what looks like one."""

    @property
    def name(self) -> str | None: ...

    @property
    def isActive(self) -> bool: ...

    def exception(self) -> Exception | None: ...

    def stop(self) -> None: ...

    def awaitTermination(self) -> object: ...


def use_pool(spark: SparkSession, name: str) -> None:
    """Let the jobs of this thread, and of those that it starts, bear a name and share the cores fairly with others."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    spark.sparkContext.setJobDescription(name)
