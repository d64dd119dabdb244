"""Records per second out of the archive, against the Spark Kafka connector reading the same offsets from the broker."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from benchmarks import drain
from benchmarks.figures import report, spread
from benchmarks.platform import broker_process, cpu_s, platform
from infra.archive.catalog import open_archive
from infra.archive.plan import Archive
from infra.archive.read import read_all
from infra.archive.source import frame
from infra.archive.union import broker_frame
from infra.ranges import Ranges
from infra.settings import Settings
from infra.spark import session
from infra.topics import TopicSpec, ensure_topics, offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = ("lz4", "zstd")
PARTITIONS = 2
SHARE = 0.01
WAIT_S = 120
WARM_UP = 2  # rounds that are not counted
RATIO, LITTLE = "ratio", "1 % of the range, share of reading all"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Wall-clock seconds, and seconds of the broker's CPU in that time."""

    seconds: float
    broker_s: float


def fill(spark: SparkSession, settings: Settings, codec: str, records: int) -> Archive:
    """Fill a topic of its own with departures, and wait until its closed segments are archived."""
    topic = _topic(codec)
    configs = {"remote.storage.enable": "true", "segment.bytes": str(4 << 20), "retention.ms": "-1"}
    ensure_topics(settings, [TopicSpec(name=topic, partitions=PARTITIONS, configs=configs)])
    drain.produce(spark, settings, records, codec, topic)
    return archived(settings, topic, int(0.7 * records))


def archived(settings: Settings, topic: str, least: int) -> Archive:
    """The archive of a topic, once it has all that the broker says to have moved there, and so many records."""
    deadline = time.monotonic() + WAIT_S
    while True:
        archive = open_archive(settings, [topic])
        reached = {partition: bounds.end for partition, bounds in archive.bounds(topic).items()}
        tiered = {partition: there.tiered for partition, there in offsets(settings, [topic])[topic].items()}
        if reached == tiered and sum(reached.values()) >= least:
            return archive
        if time.monotonic() > deadline:
            raise RuntimeError(f"{reached} of {topic} are archived after {WAIT_S} s; expected {least} records")
        time.sleep(1)


def drained(rows: DataFrame, broker: psutil.Process) -> Measured:
    """Read every column of every row and keep none."""
    began, cpu = time.monotonic(), cpu_s(broker)
    rows.write.format("noop").mode("overwrite").save()
    return Measured(seconds=time.monotonic() - began, broker_s=cpu_s(broker) - cpu)


def in_this_process(archive: Archive, topic: str, ranges: Ranges) -> tuple[float, int]:
    """Seconds and rows of a read that plans anew, without Spark."""
    began = time.monotonic()
    fresh = Archive(archive.store, archive.partitions)
    rows = sum(batch.num_rows for batch in read_all(fresh.plan({topic: ranges}), fresh.store))
    return time.monotonic() - began, rows


def middle(ranges: Ranges) -> Ranges:
    """So large a share of each partition as SHARE says, from its middle."""
    return {p: ((a + b) // 2, (a + b) // 2 + max(1, int((b - a) * SHARE))) for p, (a, b) in ranges.items()}


def _topic(codec: str) -> str:
    return f"archive.{codec}"


def measure(
    spark: SparkSession, settings: Settings, codec: str, records: int, rounds: int
) -> dict[str, dict[str, float]]:
    """The two by turns, after uncounted rounds of each, and a small share of the range beside all of it."""
    broker = broker_process(settings)
    topic, archive = _topic(codec), fill(spark, settings, codec, records)
    ranges = {partition: (bounds.start, bounds.end) for partition, bounds in archive.bounds(topic).items()}
    count, little = (sum(end - start for start, end in r.values()) for r in (ranges, middle(ranges)))
    theirs, ours, shares = [], [], []
    for number in range(WARM_UP + rounds):
        connector = drained(broker_frame(spark, settings, topic, ranges), broker)
        archived = drained(frame(spark, archive, {topic: ranges}), broker)
        all_s, all_rows = in_this_process(archive, topic, ranges)
        little_s, little_rows = in_this_process(archive, topic, middle(ranges))
        if (all_rows, little_rows) != (count, little):
            raise RuntimeError(f"{all_rows} of {count} rows, {little_rows} of {little}")
        print(f"{codec} {number}: broker {count / connector.seconds:,.0f}/s, archive {count / archived.seconds:,.0f}/s")
        if number >= WARM_UP:
            theirs.append(connector)
            ours.append(archived)
            shares.append(little_s / all_s)
    return {
        "through the broker, records/s": spread([count / m.seconds for m in theirs]),
        "from the archive, records/s": spread([count / m.seconds for m in ours]),
        RATIO: spread([a.seconds / b.seconds for a, b in zip(theirs, ours, strict=True)]),
        "broker CPU through the broker, s": spread([m.broker_s for m in theirs]),
        "broker CPU from the archive, s": spread([m.broker_s for m in ours]),
        LITTLE: spread(shares),
    }


def main() -> int:
    """Measure each codec on a topic of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with platform("archive") as settings:
        spark = session(settings, "archive")
        measured = {codec: measure(spark, settings, codec, args.records, args.rounds) for codec in CODECS}
        spark.stop()
    figures: dict[str, object] = {"records": args.records}
    claims = {}
    for codec, figures_of_codec in measured.items():
        figures |= {f"{codec}: {name}": values for name, values in figures_of_codec.items()}
        claims[f"{codec}: archive >= 2.0 x broker (median)"] = figures_of_codec[RATIO]["median"] >= 2.0
        claims[f"{codec}: 1 % of the range costs <= 5 % (median)"] = figures_of_codec[LITTLE]["median"] <= 0.05
    return 0 if report("archive", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
