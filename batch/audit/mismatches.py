"""Finds records that differ between archived segments and the broker's own log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twofold.batch.audit import topic_certificates
from twofold.batch.audit.hash_buckets import compare_groups
from twofold_archive.format.record_columns import RECORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True, order=True)
class Mismatch:
    """A block of offsets `[start, end)` in which the two copies have different records.

    Attributes:
        archive, broker: the number of committed records of each copy, among the offsets that both should have.
    """

    partition: int
    start: int
    end: int
    archive: int
    broker: int

    def __str__(self) -> str:
        has = f"{self.archive:,} records in the archive, {self.broker:,} on the broker"
        return f"partition {self.partition} [{self.start}, {self.end}): {has}"


def find_mismatches(archive: DataFrame, broker: DataFrame) -> list[Mismatch]:
    """Finds the blocks of offsets in which two frames of raw records, with the columns of `RECORD`, differ.

    They are compared by counts and by hashes that do not depend on the order.
    """
    from pyspark.sql import functions as F

    by = {"p": F.col("partition").cast("bigint"), "block": topic_certificates.block_of("offset")}
    size = topic_certificates.BLOCK
    return sorted(
        Mismatch(
            partition=group.place[0],
            start=group.place[1] * size,
            end=(group.place[1] + 1) * size,
            archive=group.one,
            broker=group.other,
        )
        for group in compare_groups(archive, broker, by, RECORD)
        if not group.is_equal
    )
