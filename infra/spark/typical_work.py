"""Typical Spark work of a command, run once to warm a server or to record classes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.infra.spark.spark_session import tune_for_batch_size
from twofold_algebra.sql.names import SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROUNDS = 2
"""One by compiled queries, one by interpreted ones: commands need both."""


def warm_up(spark: SparkSession, scratch: Path) -> None:
    """Runs the typical work several times, so that the JVM compiles the important code; leaves no files.

    Args:
        scratch: a directory that Spark can write to, removed before and after.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        rows = write_rows(spark, scratch / "rows")
        for number in range(_ROUNDS):
            tune_for_batch_size(spark, few=number > 0)
            merge(by_minute(rows), scratch / "by_minute")
            minutes = spark.read.format("delta").load(str(scratch / "by_minute"))
            minutes.join(rows, "k", "left_semi").where("rows > 0").toArrow()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_rows(spark: SparkSession, place: Path) -> DataFrame:
    """Writes a Delta table of a hundred rows, one per second, and returns it as a frame."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    rows = spark.createDataFrame(pa.table({"k": ["a", "b"] * 50, "n": range(100)}))
    rows = rows.withColumn("at", F.timestamp_seconds("n")).withColumn("raw", F.encode("k", "utf-8"))
    rows.write.format("delta").save(str(place))
    return spark.read.format("delta").load(str(place))


def by_minute(rows: DataFrame) -> DataFrame:
    """Aggregates these rows by windows of a minute."""
    from pyspark.sql import functions as F

    return (
        rows.groupBy("k", F.window("at", "1 minute"))
        .agg(F.count("*").alias("rows"), F.avg("n").alias("mean"), F.percentile("n", 0.9).alias("p90"))
        .select("k", F.col("window.start").alias("minute"), "rows", "mean", "p90")
    )


def merge(rows: DataFrame, place: Path) -> None:
    """Merges the rows of a window into a Delta table, which is created if it does not exist."""
    if not place.exists():
        rows.limit(0).write.format("delta").save(str(place))
    rows.createOrReplaceTempView("by_minute")
    rows.sparkSession.sql(
        f"MERGE INTO delta.{SPARK.name(str(place))} AS t USING by_minute AS s ON t.k = s.k AND t.minute = s.minute "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
