"""Records per second from Kafka into Delta: ingest against plain `readStream` -> `from_json` -> Delta."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarks.measuring.benchmark_platform import platform
from benchmarks.measuring.figures import report, spread
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import load
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import events_schema
from twofold.tables.refresh.open_platform import ensure_domain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "flights.departures"
FIRST = datetime(2013, 1, 1, 10, 15, tzinfo=UTC)


def produce(
    spark: SparkSession,
    settings: Settings,
    records: int,
    codec: str = "none",
    topic: str = TOPIC,
    *,
    first: datetime = FIRST,
    apart_s: float = 0.02,
    tasks: int = 4,
) -> None:
    """Fill a topic with departures, none of them broken.

    Args:
        apart_s: seconds from one departure to the next.
        tasks: that write at once, each of them a part of the time in order.
    """
    (
        spark.range(records, numPartitions=tasks)
        .selectExpr(
            "cast(id as string) as key",
            f"""to_json(named_struct(
                'flight_id', concat('UA', id, '/2013-01-01T10:15Z'), 'kind', 'departed', 'carrier', 'UA',
                'flight', cast(id % 9000 as int), 'tail_number', concat('N', id % 5000), 'origin',
                element_at(array('EWR', 'JFK', 'LGA'), cast(id % 3 + 1 as int)), 'destination', 'IAH',
                'scheduled_at', '2013-01-01T10:15:00Z',
                'occurred_at', date_format(
                    timestamp_seconds({int(first.timestamp())} + floor(id * {apart_s})), "yyyy-MM-dd'T'HH:mm:ss'Z'"),
                'delay_min', cast(id % 200 as int), 'reported_at', '2013-01-01T10:17:05Z')) as value""",
        )
        .write.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("kafka.compression.type", codec)
        .option("kafka.linger.ms", "50")
        .option("kafka.batch.size", "262144")
        .option("topic", topic)
        .save()
    )


def ours(spark: SparkSession, settings: Settings, run: int) -> tuple[float, int]:
    """Seconds and events of a drain by the platform, into a lake of its own."""
    own = replace(settings, home=settings.home / f"ours-{run}")
    lake = Lake(own)
    registry = load()
    ensure_domain(spark, lake, registry, "flights")
    ingest = Ingest(spark, lake, registry, "flights")
    start = time.monotonic()
    ingest.start(available_now=True).awaitTermination()
    took = time.monotonic() - start
    rows = lake.rows(TOPIC)
    shutil.rmtree(own.home)
    return took, rows


def plain(spark: SparkSession, settings: Settings, topic: Topic, run: int) -> tuple[float, int]:
    """Seconds and rows of what anybody would write first."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = from_arrow_schema(events_schema(topic))
    schema = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in fields if not f.name.startswith("_"))
    home = settings.home / f"plain-{run}"
    start = time.monotonic()
    (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings.max_offsets)
        .load()
        .select(F.from_json(F.col("value").cast("string"), schema).alias("r"), "partition", "offset", "timestamp")
        .select("r.*", "partition", "offset", "timestamp")
        .writeStream.format("delta")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(home / "table"))
        .awaitTermination()
    )
    took = time.monotonic() - start
    rows = spark.read.format("delta").load(str(home / "table")).count()
    shutil.rmtree(home)
    return took, rows


def main() -> int:
    """Alternate the two, after one uncounted round of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with platform("drain") as settings:
        spark = session(settings, "drain")
        topic = load().topics[TOPIC]
        produce(spark, settings, args.records)
        ratios, our_rates, plain_rates = [], [], []
        for run in range(args.rounds + 1):
            plain_s, plain_rows = plain(spark, settings, topic, run)
            our_s, our_rows = ours(spark, settings, run)
            if (our_rows, plain_rows) != (args.records, args.records):
                raise RuntimeError(f"{our_rows} and {plain_rows} rows of {args.records} records")
            print(f"round {run}: plain {args.records / plain_s:,.0f}/s, ingest {args.records / our_s:,.0f}/s")
            if run:
                ratios.append(plain_s / our_s)
                our_rates.append(args.records / our_s)
                plain_rates.append(args.records / plain_s)
        spark.stop()
    figures = {
        "records": args.records,
        "ingest, records/s": spread(our_rates),
        "plain, records/s": spread(plain_rates),
        "ratio": spread(ratios),
    }
    holds = report("drain", figures, {"ingest >= 1.0 x plain (median)": spread(ratios)["median"] >= 1.0})
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
