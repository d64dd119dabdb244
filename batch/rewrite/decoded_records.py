"""Decodes records of a topic again, and moves those with a changed result between events and quarantine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twofold.batch.ledgers.batch_run import Run
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import Cause, RunResult
from twofold.infra.delta.delta_writer import Written
from twofold.infra.delta.lake import QUARANTINE
from twofold.infra.rows.sizes import collect_if_small
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.events.record_decoder import accepted, decode_frame, rejected
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.published_table import PublishedTable
from twofold.tables.refresh.row_diff import ALL_KINDS, of_kinds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from twofold.infra.rows.rows import Rows


CAUSE: Cause = "replay"
"""The cause in commits to a topic's two tables that makes streams leave their rows to the batch."""
MOVES: Sequence[tuple[str, Sequence[str]]] = (("", ALL_KINDS[:2]), (QUARANTINE, ALL_KINDS), ("", ALL_KINDS[2:]))
"""Table of a topic, by what its name ends with, and kinds of changes, in the order in which they are published.

A record that changes sides is for a moment on both, never on neither.
"""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A run that decodes some records of a topic again.

    Attributes:
        run: its name, which begins with its cause.
        records, ranges: the number of records, and of offset ranges.
        covered: filters rows of events or quarantine to those of these records.
        info: the records, in the form of its commits.
    """

    run: str
    records: int
    ranges: int
    covered: Callable[[DataFrame], DataFrame]
    info: Mapping[str, object]


def decode_records(platform: Platform, topic: Topic, raw: DataFrame, work: Work) -> list[RunResult]:
    """Decodes records with the current code, and publishes the differences from events and quarantine.

    Args:
        raw: columns of `raw_columns(topic)`.

    Returns:
        Results of events and quarantine.
    """
    lake, name, ledgers = platform.lake, topic.full_name, Ledgers(platform.lake, platform.spark)
    newest_ms = read_ingested_offsets(lake, topic).newest_ms
    decoded = decode_frame(raw, topic, newest_ms, replayed=True).persist()
    refused = rejected(decoded) if topic.cover is None else topic.cover.quarantined(rejected(decoded), lake.settings)
    should = {name: accepted(decoded, topic), name + QUARANTINE: refused}
    targets = {each: PublishedTable.find(platform.spark, lake, platform.registry, each) for each in should}
    runs = {each: Run(lake, ledgers, each, CAUSE, work.run) for each in should}
    written = dict.fromkeys(should, Written())

    def difference(of: str) -> DataFrame:
        return targets[of].difference(should[of], work.covered(targets[of].live()))

    # Both publications into the events begin with it; rows that changed since stay alone.
    first = {each: difference(each).persist() for each in should}

    def publish(into: str, kinds: Sequence[str]) -> Written:
        def changes(attempt: int) -> tuple[Rows, Mapping[str, object]]:
            chosen = of_kinds(difference(into) if attempt else first[into], kinds)
            return collect_if_small(lake.settings, chosen), {**runs[into].info, **work.info}

        return targets[into].publish(changes, check=False)

    try:
        for side, kinds in MOVES:
            written[name + side] += publish(name + side, kinds)
    finally:
        outcomes = [run.end(written[of], touched=work.records, scopes=work.ranges) for of, run in runs.items()]
        for frame in (*first.values(), decoded):
            frame.unpersist()
    return outcomes
