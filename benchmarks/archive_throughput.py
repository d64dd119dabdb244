"""Records per second out of the archive, against the Spark Kafka connector reading the same offsets from the broker."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import psutil

from benchmarks import ingest_throughput
from benchmarks.measuring.benchmark_platform import broker_process, cpu_s, platform
from benchmarks.measuring.figures import report, spread
from tests import ROOT
from twofold.infra.archive.archive_catalog import open_archive
from twofold.infra.archive.archive_frame import frame
from twofold.infra.archive.archive_source import ArchiveSource
from twofold.infra.archive.log_union import broker_frame
from twofold.infra.kafka.topic_admin import TopicSpec, ensure_topics, offsets
from twofold.infra.offset_ranges import Ranges
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold_archive.read_plan import Archive
from twofold_archive.segment_reader import read_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = ("lz4", "zstd")
PARTITIONS = 2
SHARE = 0.01
WAIT_S = 120
WARM_UP = 5  # rounds that are not counted
PROCESSES = 2
BROKER, ARCHIVE, SOURCE = READERS = ("through the broker", "from the archive", "by the data source")
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
    ingest_throughput.produce(spark, settings, records, codec, topic)
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


def read_alone(settings: Settings, reader: str, topic: str, rounds: int) -> list[Measured]:
    """All that is archived of a topic, by one reader in a session of its own, after uncounted rounds."""
    spark, broker = session(settings, f"archive-{reader}"), broker_process(settings)
    archive = open_archive(settings, [topic])
    ranges = _ranges(archive, topic)
    spark.dataSource.register(ArchiveSource)
    source = spark.read.format("archive").option("topic", topic)
    source = source.option("bootstrap", settings.bootstrap_servers).option("archive", settings.archive_uri)
    frames: dict[str, Callable[[], DataFrame]] = {
        BROKER: lambda: broker_frame(spark, settings, topic, ranges),
        ARCHIVE: lambda: frame(spark, archive, {topic: ranges}),
        SOURCE: source.load,
    }
    measured = [drained(frames[reader](), broker) for _ in range(WARM_UP + rounds)]
    spark.stop()
    return measured[WARM_UP:]


def in_a_process(settings: Settings, reader: str, topic: str, rounds: int) -> list[Measured]:
    """`read_alone` in a process that reads nothing else, as a replay does."""
    arguments = ["--reader", reader, "--topic", topic, "--rounds", str(rounds)]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.archive_throughput", *arguments],
        env={**os.environ, **settings.environment(), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(ran.stdout.splitlines()[-1], type=list[Measured])


def in_this_process(archive: Archive, topic: str, ranges: Ranges) -> tuple[float, int]:
    """Seconds and rows of a read with its planning, without Spark."""
    began = time.monotonic()
    fresh = Archive(archive.store, archive.partitions)
    rows = sum(batch.num_rows for batch in read_all(fresh.plan({topic: ranges}), fresh.store))
    return time.monotonic() - began, rows


def middle(ranges: Ranges) -> Ranges:
    """So large a share of each partition as SHARE says, from its middle."""
    return {p: ((a + b) // 2, (a + b) // 2 + max(1, int((b - a) * SHARE))) for p, (a, b) in ranges.items()}


def _topic(codec: str) -> str:
    return f"archive.{codec}"


def _ranges(archive: Archive, topic: str) -> dict[int, tuple[int, int]]:
    return {partition: (bounds.start, bounds.end) for partition, bounds in archive.bounds(topic).items()}


def measure(
    settings: Settings, archive: Archive, codec: str, rounds: int, processes: int
) -> dict[str, dict[str, float]]:
    """The readers by turns, each in processes of its own; and a small share of the range against all of it."""
    topic = _topic(codec)
    ranges = _ranges(archive, topic)
    count, little = (sum(end - start for start, end in r.values()) for r in (ranges, middle(ranges)))
    times: dict[str, list[Measured]] = {reader: [] for reader in READERS}
    for number in range(processes):
        for reader in READERS:
            measured = in_a_process(settings, reader, topic, rounds)
            rates = ", ".join(f"{count / m.seconds:,.0f}/s" for m in measured)
            print(f"{codec} {number}: {reader}: {rates}", flush=True)
            times[reader] += measured
    shares = []
    for _ in range(WARM_UP + rounds):
        all_s, all_rows = in_this_process(archive, topic, ranges)
        little_s, little_rows = in_this_process(archive, topic, middle(ranges))
        if (all_rows, little_rows) != (count, little):
            raise RuntimeError(f"{all_rows} of {count} rows, {little_rows} of {little}")
        shares.append(little_s / all_s)
    return {
        **{f"{reader}, records/s": spread([count / m.seconds for m in times[reader]]) for reader in READERS},
        RATIO: spread([a.seconds / b.seconds for a, b in zip(times[BROKER], times[ARCHIVE], strict=True)]),
        **{f"broker CPU {reader}, s": spread([m.broker_s for m in times[reader]]) for reader in READERS},
        LITTLE: spread(shares[WARM_UP:]),
    }


def main() -> int:
    """Measure each codec on a topic of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="of each process")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="of each reader")
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=[*CODECS])
    parser.add_argument("--reader", choices=READERS, help="only this one, of a platform that runs")
    parser.add_argument("--topic", help="that it reads")
    args = parser.parse_args()
    if args.reader:
        measured = read_alone(Settings.from_environment(), args.reader, args.topic, args.rounds)
        print(msgspec.json.encode(measured).decode())
        return 0
    with platform("archive") as settings:
        spark = session(settings, "archive")
        archives = {codec: fill(spark, settings, codec, args.records) for codec in args.codecs}
        spark.stop()
        measured_of = {
            codec: measure(settings, archive, codec, args.rounds, args.processes) for codec, archive in archives.items()
        }
    figures: dict[str, object] = {"records": args.records}
    claims = {}
    for codec, figures_of_codec in measured_of.items():
        figures |= {f"{codec}: {name}": values for name, values in figures_of_codec.items()}
        claims[f"{codec}: archive >= 2.0 x broker (median)"] = figures_of_codec[RATIO]["median"] >= 2.0
        claims[f"{codec}: 1 % of the range costs <= 5 % (median)"] = figures_of_codec[LITTLE]["median"] <= 0.05
    return 0 if report("archive", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
