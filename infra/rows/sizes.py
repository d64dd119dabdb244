"""Size thresholds: below them work runs in this process, above them on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.infra.rows.rows import are_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from twofold.infra.project.settings import Settings
    from twofold.infra.rows.rows import Rows

# Rows, as multiples of the setting `small_rows`.
COMMITTED = 1  # a commit that delta-rs makes sooner than Spark
INGESTED = 5  # records that are decoded here sooner than by workers, which take 10 s of CPU to start
REVISED = 8  # rows behind a commit: Spark takes 1.3 s to know that 50,000 are new and to merge them, delta-rs 0.15 s
HANDED_OVER = 10  # to Spark, from this process
COMPARED = 50  # on each side
CHANGED = 100  # whose scopes are collected
SEARCHED = 1_000  # for those that matter

RECORD_BYTES = 64 << 20
"""Bytes of the keys and values of records."""


HELD_BYTES = 256 << 20
"""Bytes of rows that this process, or its JVM, holds to compare them."""
COMPRESSED = 4
"""Bytes in memory for one in a file, at a guess: they matter if rows are large, and most of those are texts."""


def most_rows(settings: Settings, times: int) -> int:
    """Returns the number of rows that this process holds or reads, for one of the purposes above."""
    return settings.small_rows * times


def is_small(settings: Settings, rows: int, times: int = COMMITTED, *, record_bytes: float = 0) -> bool:
    """Whether this process writes the rows, rather than Spark; the setting `engine` can force either."""
    if settings.engine != "auto":
        return settings.engine == "delta-rs"
    return rows <= most_rows(settings, times) and record_bytes <= RECORD_BYTES


def collect_if_small(settings: Settings, frame: Rows, most: int | None = None) -> Rows:
    """Collects the rows into this process if it writes them, else returns the frame.

    Args:
        most: the number of such rows that this process should hold at most.
    """
    if are_here(frame):
        return frame
    if settings.engine != "auto":
        return frame if settings.engine == "spark" else collected(frame)
    committed = most_rows(settings, COMMITTED)
    most = committed if most is None else min(committed, most)
    rows = collected(frame.limit(most + 1))
    return rows if are_here(rows) and len(rows) <= most else frame


def held_if_small(rows: pa.RecordBatchReader, most: int) -> pa.Table | None:
    """Reads the rows into this process; None as soon as they are more than `most`, or too many bytes."""
    batches, count, size = [], 0, 0
    for batch in rows:
        batches.append(batch)
        count, size = count + len(batch), size + batch.nbytes
        if count > most or size > HELD_BYTES:
            return None
    return pa.Table.from_batches(batches, rows.schema)


def collected(frame: DataFrame) -> Rows:
    """Collects the rows into this process; returns the frame if they exceed Spark's limit, a quarter of its heap."""
    try:
        return frame.toArrow()
    except Exception as error:  # of a server as of a JVM in this process
        if "spark.driver.maxResultSize" not in str(error):
            raise
        return frame
