"""The frame gives the rows that the plain reader gives, with the schema of the Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from packages.twofold_archive.tests.archived_logs import LZ4, TOPIC, Batch, Record, Stored, partitions_of, stored
from twofold.infra.archive.archive_frame import frame
from twofold.infra.archive.platform_archive import ArchiveFiles, PlatformArchive
from twofold.infra.errors import NotArchived
from twofold_archive.format.record_columns import SCHEMA
from twofold_archive.format.segment_store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KAFKA_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)


def archive_of(root: Path, segments: Sequence[Stored]) -> PlatformArchive:
    for one in segments:
        one.write(root)
    return PlatformArchive(Store(ArchiveFiles(str(root))), partitions_of(segments))


def test_rows_and_schema_are_those_of_the_kafka_source(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    segments = [
        stored(
            [
                Batch(
                    base=base,
                    records=[Record(key=None, value=b"v%d" % i, headers=[("h", None)] * (i % 3)) for i in range(7)],
                    codec=LZ4,
                ).encode()
                for base in range(first, first + 70, 7)
            ],
            identity=UUID(int=first),
        )
        for first in (0, 70)
    ]
    archive = archive_of(tmp_path, segments)
    ranges = {TOPIC: {0: (3, 120)}}

    found = frame(spark, archive, ranges, SCHEMA.names)

    assert found.schema == StructType.fromDDL(KAFKA_SCHEMA)
    assert found.rdd.getNumPartitions() == 2
    expected = [row for batch in archive.read(ranges, SCHEMA.names) for row in batch.to_pylist()]
    assert [row["offset"] for row in expected] == list(range(3, 120))
    assert found.orderBy("offset").toArrow().to_pylist() == expected


def test_columns_are_pruned_and_no_range_is_no_row(spark: SparkSession, tmp_path: Path) -> None:
    archive = archive_of(tmp_path, [stored([Batch(base=0, records=[Record()] * 3).encode()])])

    assert frame(spark, archive, {TOPIC: {0: (1, 3)}}, ["offset"]).toArrow().to_pydict() == {"offset": [1, 2]}
    assert frame(spark, archive, {TOPIC: {0: (1, 1)}}).count() == 0


def test_what_is_not_archived_fails_before_a_job_starts(spark: SparkSession, tmp_path: Path) -> None:
    archive = archive_of(tmp_path, [stored([Batch(base=0, records=[Record()] * 3).encode()])])

    with pytest.raises(NotArchived, match="up to 3, its frontier"):
        frame(spark, archive, {TOPIC: {0: (0, 4)}})


def test_damage_fails_the_job_with_segment_batch_and_reason(spark: SparkSession, tmp_path: Path) -> None:
    one = stored([Batch(base=0, records=[Record(value=b"intact")] * 3).encode()])
    archive = archive_of(tmp_path, [one.with_log(one.files["log"].replace(b"intact", b"broken", 1))])

    with pytest.raises(Exception, match=r"log-0/0{20}-\S+, batch at offset 0, byte 0: its checksum .* does not match"):
        frame(spark, archive, {TOPIC: {0: (0, 3)}}).collect()


def test_spark_takes_what_it_cannot_know_the_size_of_for_large(spark: SparkSession, tmp_path: Path) -> None:
    archive = archive_of(tmp_path, [stored([Batch(base=0, records=[Record()] * 3).encode()])])

    one, other = (frame(spark, archive, {TOPIC: {0: (0, 3)}}, ["offset"]) for _ in range(2))

    plan = one.join(other, "offset")._jdf.queryExecution().executedPlan().toString()
    assert "Broadcast" not in plan
