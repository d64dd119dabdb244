"""Publishes decoded records: those that differ move between events and quarantine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from batch.ledgers.batch_run import Run
from batch.ledgers.run_ledgers import Ledgers
from batch.ledgers.run_result import Cause, RunResult
from batch.reconcile import reconcile_tables
from infra.delta.delta_writer import CHANGE, Written
from infra.delta.lake import QUARANTINE
from infra.delta.sizes import collect_if_small
from tables.declare.metadata_columns import OFFSET, PARTITION
from tables.declare.topic import Topic
from tables.refresh.events.ingested_offsets import read_ingested_offsets
from tables.refresh.events.record_decoder import accepted, decode_frame, rejected
from tables.refresh.open_platform import Platform
from tables.refresh.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from infra.spark.rows import Rows


KEY = (PARTITION, OFFSET)
CAUSE: Cause = "replay"
"""What commits say of themselves, by which streams leave their rows to the batch."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A run that decodes some records of a topic again.

    Attributes:
        run: its name, which begins with its cause.
        records, ranges: how many, and in how many ranges of offsets.
        covered: of the topic's events, or of its quarantine, the rows of these records.
        info: which records, as its commits say it.
    """

    run: str
    records: int
    ranges: int
    covered: Callable[[DataFrame], DataFrame]
    info: Mapping[str, object]


def publish(platform: Platform, topic: Topic, raw: DataFrame, work: Work) -> list[RunResult]:
    """Decode records with today's code, and publish how the outcome differs from what the two tables have of them.

    Args:
        raw: columns of `raw_columns(topic)`.

    Returns:
        Outcomes of events and quarantine.
    """
    newest_ms = read_ingested_offsets(platform.lake, topic).newest_ms
    decoded = decode_frame(raw, topic, newest_ms, replayed=True).persist()
    targets = targets_of(platform, topic)
    events, quarantine = (
        _Decoded(target, rows, work)
        for target, rows in zip(targets, (accepted(decoded, topic), rejected(decoded)), strict=True)
    )
    try:
        # A record that changes sides is for a moment on both, never on neither.
        events.publish(f"{CHANGE} <> 'delete'")
        quarantine.publish("true")
        events.publish(f"{CHANGE} = 'delete'")
    finally:
        outcomes = [events.end(), quarantine.end()]
        decoded.unpersist()
    return outcomes


def targets_of(platform: Platform, topic: Topic) -> tuple[Target, Target]:
    """The events and the quarantine of a topic, by the places of their records in the log."""
    compared = {topic.full_name: list(topic.columns), topic.full_name + QUARANTINE: ["value", "reasons"]}
    events, quarantine = (
        Target(spark=platform.spark, lake=platform.lake, name=name, key=KEY, compared=columns)
        for name, columns in compared.items()
    )
    return events, quarantine


def target_of(platform: Platform, name: str) -> Target:
    """The table of a declaration, the events of a topic, or its quarantine, by full name."""
    if name in platform.registry.tables:
        return Target.of_table(platform.spark, platform.lake, platform.registry.tables[name])
    events, quarantine = targets_of(platform, platform.registry.topics[name.removesuffix(QUARANTINE)])
    return quarantine if name.endswith(QUARANTINE) else events


def reconcile_below(platform: Platform, topic: Topic) -> list[RunResult]:
    """Carry what was published through every table that reads the topic, directly or through others, inputs first.

    Raises: as `reconcile`, after all of these tables were looked at.
    """
    return reconcile_tables(platform, platform.registry.below([topic.full_name]))


class _Decoded:
    """The rows of one of the two tables of a topic that were made by decoding records again."""

    def __init__(self, target: Target, should: DataFrame, work: Work) -> None:
        self._target, self._should, self._work = target, should, work
        self._run = Run(target.lake, Ledgers(target.lake, target.spark), target.name, CAUSE, work.run)
        self._written = Written()

    def publish(self, kinds: str) -> None:
        """Publish changes of these kinds, a condition in SQL."""
        info = {**self._run.info, **self._work.info}

        def changes(attempt: int) -> tuple[Rows, Mapping[str, object]]:
            chosen = (self._difference() if attempt else self._first).where(kinds)
            return collect_if_small(self._target.lake.settings, chosen), info

        self._written += self._target.publish(changes, check=False)

    @cached_property
    def _first(self) -> DataFrame:
        """The difference as both publications into the events begin with it; rows that changed since stay alone."""
        return self._difference().persist()

    def _difference(self) -> DataFrame:
        return self._target.difference(self._should, self._work.covered(self._target.live()))

    def end(self) -> RunResult:
        """Note the run where it changed something, and forget what was computed."""
        if "_first" in self.__dict__:
            self._first.unpersist()
        return self._run.end(self._written, touched=self._work.records, scopes=self._work.ranges)
