"""Publishes records that were decoded again: what comes out differently moves between events and quarantine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from batch.reconcile import Reconcile
from tables.declaration import Table, Topic
from tables.decode import OFFSET, PARTITION, accepted, decode_frame, rejected
from tables.difference import difference
from tables.frontier import frontier
from tables.lake import QUARANTINE
from tables.outcome import Cause, Outcome
from tables.registry import Registry
from tables.setup import Platform
from tables.writer import CHANGE, Stamp, Writer, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = (PARTITION, OFFSET)
_APP = "replay"
_CAUSE: Cause = "replay"
"""What commits say of themselves, by which streams leave their rows to the batch."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A run that decodes some records of a topic again.

    Attributes:
        run: its name.
        records, ranges: how many, and in how many ranges of offsets.
        covered: of the topic's events, or of its quarantine, the rows of these records.
        info: which records, as its commits say it.
        began: when, by `time.monotonic`.
    """

    run: str
    records: int
    ranges: int
    covered: Callable[[DataFrame], DataFrame]
    info: Mapping[str, object]
    began: float = field(default_factory=time.monotonic)


def publish(platform: Platform, topic: Topic, raw: DataFrame, work: Work) -> list[Outcome]:
    """Decode records with today's code, and publish how the outcome differs from what the two tables have of them.

    Args:
        raw: columns of `RAW_SCHEMA`.

    Returns:
        Outcomes of events and quarantine.
    """
    newest_ms = frontier(platform.lake, topic).newest_ms
    decoded = decode_frame(raw, topic, newest_ms, replayed=True).persist()
    try:
        events = _Publication(platform, topic.full_name, work)
        quarantine = _Publication(platform, topic.full_name + QUARANTINE, work)
        news = events.difference(accepted(decoded, topic), list(topic.columns)).persist()
        # A record that changes sides is for a moment on both, never on neither.
        done = [events.apply(news.where(f"{CHANGE} <> 'delete'"))]
        moved = quarantine.apply(quarantine.difference(rejected(decoded), ["value", "reasons"]))
        done.append(events.apply(news.where(f"{CHANGE} = 'delete'")))
        news.unpersist()
        return [events.outcome(done), quarantine.outcome([moved])]
    finally:
        decoded.unpersist()


def reconcile_below(platform: Platform, topic: Topic) -> list[Outcome]:
    """Carry what was published through every table that reads the topic, directly or through others, inputs first."""
    return [
        outcome
        for table in _below(platform.registry, topic)
        for outcome in Reconcile(platform, table).run(verify=False)
    ]


class _Publication:
    """Publishes into one of the two tables of a topic."""

    def __init__(self, platform: Platform, name: str, work: Work) -> None:
        self._platform, self._name, self._work = platform, name, work
        self._writer = Writer(platform.lake, name, platform.spark)
        self._version = platform.lake.version(name)

    def difference(self, should: DataFrame, compared: list[str]) -> DataFrame:
        """How the table's rows of the records differ from `should`."""
        live = self._work.covered(self._platform.lake.frame(self._platform.spark, self._name))
        return difference(should, live, KEY, compared)

    def apply(self, changes: DataFrame) -> Written:
        rows = self._writer.collect(changes)
        if not (len(rows) if isinstance(rows, pa.Table) else rows.count()):
            return Written()
        info = {"cause": _CAUSE, "run": self._work.run, **self._work.info}
        return self._writer.apply(rows, KEY, Stamp(app=_APP, version=self._writer.next_number(_APP), info=info))

    def outcome(self, written: list[Written]) -> Outcome:
        after = [w.version for w in written if w.version is not None]
        return Outcome(
            table=self._name,
            cause=_CAUSE,
            run=self._work.run,
            touched=self._work.records,
            scopes=self._work.ranges,
            inserted=sum(w.inserted for w in written),
            updated=sum(w.updated for w in written),
            deleted=sum(w.deleted for w in written),
            files_written=sum(w.files for w in written),
            version_before=self._version,
            version_after=after[-1] if after else self._version,
            seconds=time.monotonic() - self._work.began,
        )


def _below(registry: Registry, topic: Topic) -> list[Table]:
    reached = {topic.full_name}
    below = []
    for table in registry.in_order():
        if any(source.full_name in reached for source in registry.upstream(table)):
            reached.add(table.full_name)
            below.append(table)
    return below
