"""The scheduler pool of a streaming query."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_pool(spark: SparkSession, name: str) -> None:
    """Names the jobs of this thread and its child threads, and runs them in a fair scheduler pool of that name."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    spark.sparkContext.setJobDescription(name)
