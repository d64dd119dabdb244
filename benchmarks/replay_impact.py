"""Delay of the live stream and load of the broker during a replay of all history."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from deltalake import DeltaTable

from benchmarks.archive_throughput import archived
from benchmarks.ingest_throughput import TOPIC, produce
from benchmarks.measuring.benchmark_platform import broker_process, command, cpu_s, driver, platform, traffic
from benchmarks.measuring.figures import percentile, report
from benchmarks.stream_freshness import appended
from twofold.infra.delta.lake import Lake
from twofold.infra.kafka.topic_admin import ensure_topics, offsets
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.events.topic_specs import spec
from twofold.tables.refresh.open_platform import ensure_domain

CODEC, SEGMENT_BYTES = "lz4", 4 << 20
FIRST_DAY, DAYS = date(2013, 1, 3), 360  # after the history, so that nothing is late by it
APART_S = 90  # from one departure of the history to the next, so that it breaks no rule of a table
WARM_S, BEFORE_S, EVERY_S = 60, 40, 1.0
KEPT = ["delays_by_hour"]
LAG_S = 10
"""The bound: the stream is never further behind than what arrives in so many seconds."""
RISE, GROWTH = 1.10, 1.25


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A look at the log and at what was taken in: seconds since the epoch, records, seconds of the broker's CPU."""

    at: float
    produced: int
    ingested: int
    broker_s: float

    @property
    def lag(self) -> int:
        """Records that are on the broker and not in events or quarantine."""
        return self.produced - self.ingested


def make_history(settings: Settings, records: int, wrong: int) -> None:
    """Records in the topic, archived and ingested, of which a decoder once misread so many."""
    topic = load().find_topic(TOPIC)
    declared = spec(topic)
    ensure_topics(settings, [replace(declared, configs={**declared.configs, "segment.bytes": str(SEGMENT_BYTES)})])
    spark = session(settings, "replay")
    lake, registry = Lake(settings), load()
    first = datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC) - timedelta(seconds=APART_S * records)
    produce(spark, settings, records, CODEC, first=first, apart_s=APART_S, tasks=1)
    ensure_domain(spark, lake, registry, "flights")
    Ingest(spark, lake, registry, "flights").start(available_now=True).awaitTermination()
    archived(settings, TOPIC, records // 2)
    DeltaTable(lake.uri(TOPIC)).update(
        updates={"delay_min": "delay_min + 1"}, predicate=f"_partition = 0 AND _offset < {wrong}"
    )
    spark.stop()


def watch(settings: Settings, goes_on: Callable[[], bool]) -> list[Sample]:
    """Look once a second as long as it goes on, and once more."""
    lake, broker = Lake(settings), broker_process(settings)
    topics = load().domain_topics("flights")
    samples = []
    while True:
        last = not goes_on()
        found = offsets(settings, [topic.full_name for topic in topics])
        ingested = (read_ingested_offsets(lake, topic).ends for topic in topics)
        samples.append(
            Sample(
                at=time.time(),
                produced=sum(there.latest for partitions in found.values() for there in partitions.values()),
                ingested=sum(end for ends in ingested for end in ends.values()),
                broker_s=cpu_s(broker),
            )
        )
        if last:
            return samples
        time.sleep(EVERY_S)


@contextmanager
def running(settings: Settings, *arguments: str, nice: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A command of the platform, which is asked to end at the end of the block."""
    words, environment = command(settings, *arguments)
    process = subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=partial(os.nice, nice) if nice else None
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def figures_of(samples: Sequence[Sample], seconds: Sequence[float]) -> dict[str, float]:
    """What a window of samples shows, and the seconds until visible of the records that were appended in it."""
    first, last = samples[0], samples[-1]
    took, produced, broker_s = last.at - first.at, last.produced - first.produced, last.broker_s - first.broker_s
    return {
        "seconds": took,
        "records/s": produced / took,
        "broker CPU, s/s": broker_s / took,
        "broker CPU, us/record": 1e6 * broker_s / produced,
        "mean lag, records": sum(s.lag for s in samples) / len(samples),
        "greatest lag, records": float(max(s.lag for s in samples)),
        "visible after, p50 s": percentile(seconds, 0.5),
        "visible after, p95 s": percentile(seconds, 0.95),
        "visible after, max s": max(seconds),
    }


def thirds(samples: Sequence[Sample]) -> list[float]:
    """The mean lag of each third of the time."""
    size = -(-len(samples) // 3)
    parts = [samples[n : n + size] for n in range(0, len(samples), size)]
    return [sum(s.lag for s in part) / len(part) for part in parts]


def measure(
    settings: Settings, rate: int, warm_s: float, before_s: float, nice: int
) -> tuple[list[Sample], list[Sample], list[dict[str, Any]]]:
    """Samples of a time with live traffic alone, then of one in which the replay runs, too; and what that said."""
    with driver(settings, KEPT), running(settings, *traffic(rate, FIRST_DAY, DAYS)):
        time.sleep(warm_s)
        end = time.monotonic() + before_s
        alone = watch(settings, lambda: time.monotonic() < end)
        with running(settings, "replay", TOPIC, "--from", "earliest", "--json", nice=nice) as replay:
            during_replay = watch(settings, lambda: replay.poll() is None)
            printed, _ = replay.communicate()
        if replay.returncode:
            raise RuntimeError(f"the replay ended with {replay.returncode}: {printed[-2_000:]}")
        time.sleep(LAG_S)
    return alone, during_replay, json.loads(printed)


def visible_after(settings: Settings, since: float) -> list[tuple[float, float]]:
    """Of each record that was appended since: when that was, and seconds until its event was visible."""
    lake, from_then = Lake(settings), datetime.fromtimestamp(since, UTC)
    commits = (
        commit for topic in load().domain_topics("flights") for commit in appended(lake, topic.full_name, from_then)
    )
    return [(at, visible - at) for _, visible, times in commits for at in times]


def main() -> int:
    """Make a history, keep up with live traffic, replay the history meanwhile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--wrong", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--warm", type=float, default=WARM_S)
    parser.add_argument("--before", type=float, default=BEFORE_S)
    parser.add_argument("--nice", type=int, default=0)
    args = parser.parse_args()
    with platform("replay") as settings:
        make_history(settings, args.records, args.wrong)
        alone, during_replay, outcomes = measure(settings, args.rate, args.warm, args.before, args.nice)
        seconds = visible_after(settings, alone[0].at)

    def window(samples: Sequence[Sample]) -> Mapping[str, float]:
        return figures_of(samples, [s for at, s in seconds if samples[0].at <= at < samples[-1].at])

    before, during, parts = window(alone), window(during_replay), thirds(during_replay)
    rise = during["broker CPU, us/record"] / before["broker CPU, us/record"]
    put_right = next(outcome["updated"] for outcome in outcomes if outcome["table"] == TOPIC)
    figures = {
        "history, records": args.records,
        "put right": put_right,
        "alone": before,
        "beside a replay": during,
        "broker CPU per record, ratio": rise,
        "mean lag by thirds of the replay, records": ", ".join(f"{lag:,.0f}" for lag in parts),
    }
    claims = {
        "all that was misread is put right": put_right == args.wrong,
        f"broker CPU per record rises by less than a tenth (ratio < {RISE})": rise < RISE,
        f"the stream is never behind by more than {LAG_S} s of traffic": during["greatest lag, records"]
        <= LAG_S * args.rate,
        f"the lag does not grow: last third <= {GROWTH} x the two before": parts[-1] <= GROWTH * max(parts[:-1]),
    }
    return 0 if report("replay", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
