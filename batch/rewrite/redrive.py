"""Decodes quarantined records again, after the cause of their refusal was fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.batch.ledgers.run_result import RunResult, run_name
from twofold.batch.offset_selection import OffsetSelection
from twofold.batch.rewrite.accepted_decoding import lower_decoding
from twofold.batch.rewrite.decoded_records import CAUSE, Work, decode_records
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.duckdb_session import query
from twofold.infra.errors import BadArgument
from twofold.infra.offset_ranges import condition
from twofold.tables.declare.metadata_columns import APPENDED_AT, OFFSET, PARTITION
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA, raw_columns
from twofold.tables.refresh.open_platform import Platform
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def redrive(platform: Platform, topic: Topic, span: OffsetSelection, reason: str | None = None) -> list[RunResult]:
    """Decodes quarantined records again, in a copy, with the current code, from the bytes in quarantine.

    Records that pass become events and leave quarantine; streams leave these rows to the batch. Records that fail stay,
    with new reasons. So do those that were encrypted as a whole, as they are; `send --quarantined` is for them. A
    second run changes nothing.

    Args:
        span: selects among the quarantined records.
        reason: text that one of a record's reasons contains; None: any.

    Returns:
        Results of events and quarantine; none if no record was selected.

    Raises:
        BadArgument: an empty reason, or a span that the topic cannot have; nothing was touched.
    """
    if reason is not None and not reason.strip():
        raise BadArgument("The reason is empty.", hint="Give a part of a reason, or leave it out for all records.")
    span.require_valid(topic, range(topic.partitions))
    places = _places(platform.lake, topic, span, reason)
    outcomes = []
    if len(places):
        spark, ranges = platform.spark, _ranges(places)
        predicate = condition(ranges, PARTITION, OFFSET)
        chosen = spark.createDataFrame(places)

        def covered(live: DataFrame) -> DataFrame:
            return live.where(predicate).join(chosen, [PARTITION, OFFSET], "left_semi").select(*live.columns)

        work = Work(
            run=run_name("redrive"),
            records=len(places),
            ranges=len(ranges),
            covered=covered,
            info={"reason": reason, "offsets": {p: list(r) for p, r in ranges.items()}},
        )
        kept = covered(platform.lake.frame(spark, topic.full_name + QUARANTINE))
        raw = kept.select(
            *(kept[column].alias(name) for column, name in ((PARTITION, "partition"), (OFFSET, "offset"))),
            kept[APPENDED_AT].alias("timestamp"),
            *(name for name in raw_columns(topic) if name in QUARANTINE_SCHEMA.names),
        )
        lower_decoding(platform.lake, topic, ranges, {"cause": CAUSE, "run": work.run})
        outcomes = decode_records(platform, topic, raw, work)
    return outcomes


def _places(lake: Lake, topic: Topic, span: OffsetSelection, reason: str | None) -> pa.Table:
    """Returns partition and offset of the selected records, without their bytes."""
    columns = [PARTITION, OFFSET, APPENDED_AT, "reasons"]
    contains = " AND contains(array_to_string(reasons, chr(10)), ?)" if reason else ""
    if cover := topic.cover:
        columns.append("value")
        contains += f" AND (value IS NULL OR NOT {cover.whole})"
    return query(
        f"SELECT {PARTITION}, {OFFSET} FROM quarantine WHERE {span.sql(DUCKDB)}{contains}",
        [reason] if reason else [],
        quarantine=lake.open(topic.full_name + QUARANTINE).scan(columns=columns),
    )


def _ranges(places: pa.Table) -> dict[int, tuple[int, int]]:
    """Maps each partition to the range from its first to its last selected offset."""
    bounds = places.group_by(PARTITION).aggregate([(OFFSET, "min"), (OFFSET, "max")]).to_pylist()
    return {row[PARTITION]: (row[f"{OFFSET}_min"], row[f"{OFFSET}_max"] + 1) for row in bounds}
