"""Rebuilds the lost state of a table's stream, and verifies it by the rows that it produces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument, UnexplainedDifference
from twofold.infra.instants import from_epoch_ms
from twofold.infra.offset_ranges import RangesOf
from twofold.infra.rows.rows import in_spark
from twofold.infra.spark.spark_literals import instant_of
from twofold.streaming.rebuild.reingest import Read
from twofold.streaming.rebuild.state_replay import (
    adopt,
    archived_steps,
    go_on_after,
    holds_no_more,
    last_known,
    replay_state,
    steps,
    whole_steps,
)
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import definition, is_same, require_one_definition
from twofold.tables.refresh.events.ingested_offsets import offsets_at
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.published_table import PublishedTable
from twofold.tables.refresh.row_diff import matching
from twofold.tables.refresh.shadow_lake import RebuildComparison, compare_rows, drop, shadow
from twofold.tables.refresh.streaming_checkpoint import Checkpoint, MicroBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Source = Literal["events", "archive"]
_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The result of a recovery: the state of a stream's checkpoint, and the work done.

    Attributes:
        found: `whole`: a table without state had lost nothing; `lost`: the checkpoint was rebuilt and put in place.
        versions: input -> the version that the stream reads next.
        source: the source of the inputs: the live `events`, or the `archive` of the log; None: none was read, since the
            stream keeps no state.
        offsets: topic -> partition -> the range `[start, end)` of the log from which the new state was built.
        rows: the comparison of the live table with the rows of the replayed stream.
    """

    table: str
    found: Literal["whole", "lost"]
    versions: Mapping[str, int]
    source: Source | None = None
    offsets: RangesOf = field(default_factory=dict)
    rows: RebuildComparison | None = None

    @property
    def differing(self) -> int:
        """The number of rows that differ."""
        return self.rows.differing if self.rows else 0


@dataclass(frozen=True)
class Recover:
    """A recovery of one table; its caller holds the lock of the table's stream.

    Attributes:
        starts: topic -> partition -> the first offset of its log.
        read: reads records of the log; called if the first commits of the events are gone.
        correct: reconciles a table of a platform.
    """

    live: Platform
    table: Table
    starts: Callable[[str], Mapping[int, int]]
    read: Read
    correct: Callable[[Platform, Table], object]

    def run(self, *, at_most: int = 0, from_archive: bool = False) -> Recovery:
        """Rebuilds the stream's state, and lets the stream continue from it if it produces the rows of the table.

        Args:
            at_most: accept the state if at most so many rows differ.
            from_archive: read the log even if the events have all records.

        Raises:
            BadArgument: no stream has written the table, or its next one starts over for another reason.
            DefinitionChanged: the rows of the table were computed by another definition.
            LogGap: neither the archive nor the broker has records that the events lack.
            UnexplainedDifference: names the first rows; nothing was put in place.
        """
        last = self._last()
        if not self.live.registry.strategy(self.table).has_state:
            is_whole = self._lost.is_whole
            if not is_whole:
                go_on_after(self.live, self.table, last)
            versions = self._lost.next_versions() if is_whole else last.versions
            return Recovery(
                table=self.table.full_name, found="whole" if is_whole else "lost", versions=self._by_name(versions)
            )
        drop(self.live.lake.settings, self.table, "recovery")
        recovery, in_shadow, last = self._remade(last, from_archive=from_archive)
        if recovery.differing > at_most:
            raise UnexplainedDifference(
                _described(recovery),
                hint="Nothing was put in place. Rows of late records that wait for a correction differ, too: "
                f"`{COMMAND} reconcile {recovery.table}` first. Else find out what wrote to it or to the events; "
                f"`{COMMAND} recover {recovery.table} --at-most {recovery.differing}` takes the new state as it is.",
                table=recovery.table,
                differing=recovery.differing,
                examples=list(recovery.rows.examples if recovery.rows else ())[:_NAMED],
            )
        adopt(self.live, in_shadow, self.table, last)
        drop(self.live.lake.settings, self.table, "recovery")
        return recovery

    @property
    def _lost(self) -> Checkpoint:
        return Checkpoint.of_table(self.live.lake.settings, self.table)

    def _last(self) -> MicroBatch:
        name, now = self.table.full_name, definition(self.table, self.live.registry)
        require_one_definition(self.live.lake, self.table, self.live.registry)
        if self._lost.definition and not is_same(self._lost.definition, now):
            raise BadArgument(
                f"{name}: its checkpoint is of the definition {self._lost.definition}; the declaration now says {now}.",
                hint="Nothing of it is needed: the stream of the new definition restarts from the beginning by itself.",
            )
        last = last_known(self.live, self.table)
        if last is None:
            raise BadArgument(
                f"{name}: neither a checkpoint nor a commit shows a stream that wrote it.",
                hint=f"There is nothing to recover: its stream begins with `{COMMAND} up`.",
            )
        return last

    def _remade(self, last: MicroBatch, *, from_archive: bool) -> tuple[Recovery, Platform, MicroBatch]:
        """Returns the result, the shadow with the new checkpoint, and the micro-batch after which to continue."""
        live, table = self.live, self.table
        source: Source
        plan: Iterable[MicroBatch] | None = None
        if not from_archive:
            with suppress(FileNotFoundError):  # the first commits of the events were cleaned up
                plan = steps(live, table, last)
        if plan is None:
            archived = [(batch, self._archived(batch)) for batch in whole_steps(live, table, last)]
            in_shadow, source, (last, offsets) = shadow(live, table, "recovery"), "archive", archived[-1]
            plan = archived_steps(in_shadow, archived, self.read)
        else:
            in_shadow, source, offsets = (
                shadow(live, table, "recovery", shares_events=True),
                "events",
                self._ingested(last),
            )
        replay_state(in_shadow, table, plan, last.settings)
        streamed = in_shadow.lake.version(table.full_name)
        if table.late == "correct":
            self.correct(in_shadow, table)
        recovery = Recovery(
            table=table.full_name,
            found="lost",
            versions=self._by_name(last.versions),
            source=source,
            offsets=offsets,
            rows=_compare_rows(live, in_shadow, table, streamed, with_open=holds_no_more(live, table, last)),
        )
        return recovery, in_shadow, last

    def _ingested(self, last: MicroBatch) -> dict[str, dict[int, tuple[int, int]]]:
        """Returns the offsets of each topic that the last micro-batch and those before it read."""
        topics = self.live.registry.topics_of(self.table)
        return {
            topic.full_name: offsets_at(self.live.lake, topic, version - 1)[0]
            for topic, version in zip(topics, last.versions, strict=True)
        }

    def _archived(self, last: MicroBatch) -> dict[str, dict[int, tuple[int, int]]]:
        """Returns the offsets of each topic from the start of its log up to those that were read."""
        return {
            name: {p: (start, ranges[p][1]) for p, start in self.starts(name).items() if p in ranges}
            for name, ranges in self._ingested(last).items()
        }

    def _by_name(self, versions: Sequence[int]) -> dict[str, int]:
        names = [source.full_name for source in self.live.registry.upstream(self.table)]
        return dict(zip(names, versions, strict=False))


def _compare_rows(
    live: Platform, in_shadow: Platform, table: Table, streamed: int, *, with_open: bool
) -> RebuildComparison:
    """Compares the rows that the new stream has closed, optionally also open ones, with the live rows.

    A live row may still wait for its correction, so one that equals the stream's uncorrected row is right, too. Closed
    rows of a table that drops late records are left out: which records were late depends on the stream's micro-batches,
    which are no longer known.

    Args:
        streamed: the version of the shadow's table that its stream has written.
    """
    from pyspark.sql import functions as F

    bound_ms = Checkpoint.of_table(in_shadow.lake.settings, table).watermark_ms() or 0
    is_open = F.col(str(table.closes_at)) >= instant_of(bound_ms)

    def compared(platform: Platform, version: int | None = None) -> DataFrame:
        rows = platform.lake.frame(live.spark, table.full_name, version)
        return rows.where((is_open & F.lit(with_open)) | (~is_open & F.lit(table.late == "correct")))

    target, made, there = PublishedTable.of_table(live.spark, live.lake, table), compared(in_shadow), compared(live)
    uncorrected = target.difference(compared(in_shadow, streamed), there)
    changes = in_spark(live.spark, target.difference(made, there))
    both = matching(changes, uncorrected, table.primary_key, "SEMI")
    return compare_rows(table, made, both, None if with_open else from_epoch_ms(bound_ms))


def _described(recovery: Recovery) -> str:
    """Writes a message that names the first differences."""
    lines = []
    for d in list(recovery.rows.examples if recovery.rows else ())[:_NAMED]:
        key = " ".join(f"{column}={value}" for column, value in d.key.items())
        sides = [f"{word} {dict(values)}" for word, values in (("is", d.before), ("should be", d.should)) if values]
        lines.append(f"{key} {', '.join(sides)}")
    more = recovery.differing - len(lines)
    return (
        f"{recovery.table}: what was lost and what the log gives again differ in {recovery.differing} rows: "
        + "; ".join([*lines, *([f"and {more} more"] if more > 0 else [])])
        + "."
    )
