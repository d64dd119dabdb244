"""Decodes a range of the log again with today's code, and carries what differs through every table below."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from batch.reconcile import Reconcile
from infra.errors import BadArgument
from tables.declaration import Table, Topic
from tables.decode import (
    OFFSET,
    PARTITION,
    QUARANTINE_SCHEMA,
    RAW_SCHEMA,
    decode_frame,
    events_schema,
)
from tables.difference import difference
from tables.frontier import frontier
from tables.lake import QUARANTINE
from tables.outcome import Outcome
from tables.refresh import run_name
from tables.registry import Registry, load
from tables.setup import Platform, opened
from tables.writer import CHANGE, Stamp, Writer, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from infra.settings import Settings

Offsets = Mapping[int, int]
_KEY = (PARTITION, OFFSET)
_APP = "replay"


def replay(settings: Settings, topic: str, start: Offsets | None = None, end: Offsets | None = None) -> list[Outcome]:
    """Decode the offsets `[start, end)` of each partition again and publish what comes out differently.

    A record moves between events and quarantine, or changes; then every table below is reconciled for just the rows
    that this touched. Streams leave these rows to the batch. Running it twice changes nothing the second time.

    Args:
        topic: full or bare name.
        start: partition -> first offset; None: the earliest that the broker has. Partitions not named are left out.
        end: partition -> offset after the last; None: what ingest has taken in.

    Returns:
        Outcomes of events, quarantine, then of each table below in dependency order.

    Raises:
        BadArgument: offsets that the broker has not or ingest has not reached; nothing was touched.
        BrokerUnreachable: nothing was touched.
    """
    declared = load().find_topic(topic)
    with opened(settings, "replay", [declared.domain]) as platform:
        return decode_again(platform, declared, start, end)


def decode_again(platform: Platform, topic: Topic, start: Offsets | None, end: Offsets | None) -> list[Outcome]:
    """`replay` on a platform that is open."""
    began = time.monotonic()
    ranges = _ranges(platform, topic, start, end)
    outcomes = _redecode(platform, topic, ranges, run_name("replay"), began) if ranges else []
    for table in _below(platform.registry, topic):
        outcomes += Reconcile(platform, table).run(verify=False)
    return outcomes


def _ranges(platform: Platform, topic: Topic, start: Offsets | None, end: Offsets | None) -> dict[int, tuple[int, int]]:
    from infra.topics import offsets

    on_broker = offsets(platform.lake.settings, [topic.full_name])[topic.full_name]
    ingested = frontier(platform.lake, topic).ends
    for name, given in (("start", start), ("end", end)):
        unknown = sorted(set(given or {}) - set(on_broker))
        if unknown:
            raise BadArgument(
                f"{name} names the partitions {unknown}; {topic.full_name} has {sorted(on_broker)}.",
                hint="Write partition:offset, as in 0:1200.",
            )
    ranges = {}
    for partition, bounds in on_broker.items():
        if start is not None and partition not in start:
            continue
        first = bounds.earliest if start is None else start[partition]
        last = ingested.get(partition, 0) if end is None else end.get(partition, ingested.get(partition, 0))
        if not bounds.earliest <= first <= last <= ingested.get(partition, 0):
            raise BadArgument(
                f"{topic.full_name}, partition {partition}: [{first}, {last}) is not within what the broker has and "
                f"ingest has taken in: [{bounds.earliest}, {ingested.get(partition, 0)}).",
                hint="Choose offsets within it; `./twofold status` shows them.",
            )
        if first < last:
            ranges[partition] = (first, last)
    return ranges


def _redecode(
    platform: Platform, topic: Topic, ranges: Mapping[int, tuple[int, int]], run: str, began: float
) -> list[Outcome]:
    newest_ms = frontier(platform.lake, topic).newest_ms
    decoded = decode_frame(_log(platform, topic, ranges), topic, newest_ms, replayed=True).persist()
    try:
        accepted = decoded.where("reasons IS NULL").select(*events_schema(topic).names)
        rejected = decoded.where("reasons IS NOT NULL").select(*QUARANTINE_SCHEMA.names)
        events = _Publication(platform, topic.full_name, ranges, run)
        quarantine = _Publication(platform, topic.full_name + QUARANTINE, ranges, run)
        news = events.difference(accepted, list(topic.columns)).persist()
        # A record that changes sides is for a moment on both, never on neither.
        done = [events.apply(news.where(f"{CHANGE} <> 'delete'"))]
        moved = quarantine.apply(quarantine.difference(rejected, ["value", "reasons"]))
        done.append(events.apply(news.where(f"{CHANGE} = 'delete'")))
        news.unpersist()
        return [events.outcome(done, began), quarantine.outcome([moved], began)]
    finally:
        decoded.unpersist()


def _log(platform: Platform, topic: Topic, ranges: Mapping[int, tuple[int, int]]) -> DataFrame:
    """The raw records of the ranges, through the Kafka connector."""

    def offsets(side: int) -> str:
        return json.dumps({topic.full_name: {str(p): bounds[side] for p, bounds in ranges.items()}})

    assigned = json.dumps({topic.full_name: sorted(ranges)})
    return (
        platform.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", platform.lake.settings.bootstrap_servers)
        .option("assign", assigned)
        .option("startingOffsets", offsets(0))
        .option("endingOffsets", offsets(1))
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select(*RAW_SCHEMA.names)
    )


class _Publication:
    """Publishes into one of the two tables of a topic."""

    def __init__(self, platform: Platform, name: str, ranges: Mapping[int, tuple[int, int]], run: str) -> None:
        self._platform, self._name, self._ranges, self._run = platform, name, ranges, run
        self._writer = Writer(platform.lake, name, platform.spark)
        self._version = platform.lake.version(name)

    def difference(self, should: DataFrame, compared: list[str]) -> DataFrame:
        """How the table's rows of the ranges differ from `should`."""
        wanted = " OR ".join(
            f"({PARTITION} = {p} AND {OFFSET} >= {first} AND {OFFSET} < {last})"
            for p, (first, last) in self._ranges.items()
        )
        live = self._platform.lake.frame(self._platform.spark, self._name).where(wanted)
        return difference(should, live, _KEY, compared)

    def apply(self, changes: DataFrame) -> Written:
        rows = self._writer.collect(changes)
        if not (len(rows) if isinstance(rows, pa.Table) else rows.count()):
            return Written()
        number = (self._platform.lake.open(self._name).transaction_version(_APP) or 0) + 1
        info = {"cause": "replay", "run": self._run, "offsets": {p: list(r) for p, r in self._ranges.items()}}
        return self._writer.apply(rows, _KEY, Stamp(app=_APP, version=number, info=info))

    def outcome(self, written: list[Written], began: float) -> Outcome:
        after = [w.version for w in written if w.version is not None]
        return Outcome(
            table=self._name,
            cause="replay",
            run=self._run,
            touched=sum(last - first for first, last in self._ranges.values()),
            scopes=len(self._ranges),
            inserted=sum(w.inserted for w in written),
            updated=sum(w.updated for w in written),
            deleted=sum(w.deleted for w in written),
            files_written=sum(w.files for w in written),
            version_before=self._version,
            version_after=after[-1] if after else self._version,
            seconds=time.monotonic() - began,
        )


def _below(registry: Registry, topic: Topic) -> list[Table]:
    """Every table that reads the topic, directly or through others, inputs first."""
    reached = {topic.full_name}
    below = []
    for table in registry.in_order():
        if any(source.full_name in reached for source in registry.upstream(table)):
            reached.add(table.full_name)
            below.append(table)
    return below
