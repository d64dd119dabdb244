"""Replays a lost stream's micro-batches to rebuild its state."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate

from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument
from twofold.infra.offset_ranges import RangesOf
from twofold.streaming.driver import finish
from twofold.streaming.maintain.closed_row_guard import ClosedRowGuard
from twofold.streaming.maintain.stateful_query import QueryDrivenStream, ends, state_settings
from twofold.streaming.maintain.stream_fence import StreamFence
from twofold.streaming.rebuild.reingest import Read, ingested, missing_ranges
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import definition
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.streaming_checkpoint import Checkpoint, FeedPosition, MicroBatch

_log = logging.getLogger("twofold.recover")


def last_known(live: Platform, table: Table) -> MicroBatch | None:
    """Returns a micro-batch that the lost stream had completed, by its checkpoint or the table's commits, or None.

    Work after that micro-batch is repeated, with the same rows.
    """
    ended = Checkpoint.of_table(live.lake.settings, table).ended
    return ended[-1] if ended else _committed(live, table)


def holds_no_more(live: Platform, table: Table, last: MicroBatch) -> bool:
    """Whether no later micro-batch than this one has written to the table."""
    info = live.lake.newest_info(table.full_name, "versions")
    if info is None or not last.is_between_commits:
        return info is None
    versions = [int(info["versions"].get(source.full_name, 0)) for source in live.registry.upstream(table)]
    return all(a <= b for a, b in zip(versions, last.versions, strict=True))


def steps(live: Platform, table: Table, last: MicroBatch) -> list[MicroBatch]:
    """Lists the micro-batches that lead to the last one, oldest first.

    Micro-batches of the lost checkpoint are unchanged. Earlier ones are known from the table's commits and are merged
    into ones of `max_offsets` rows; the first is also a snapshot of everything earlier.

    Raises:
        FileNotFoundError: the events tables cannot be read as of then: their logs were cleaned up since.
    """
    sources, lake = live.registry.upstream(table), live.lake
    ended = Checkpoint.of_table(lake.settings, table).ended or [last]
    first = ended[0].versions
    if not _is_readable(lake, sources, first):
        raise FileNotFoundError(f"The inputs of {table.full_name} cannot be read as they were at {first}.")
    if ended[0].number == 0 or not any(first):
        return ended
    places = [v for v in _known_versions(lake, table, sources) if _is_before(v, first)]
    oldest = bisect_left(places, True, key=partial(_is_readable, lake, sources))
    # The first is the end of the lost stream's own snapshot, as far as it is known.
    apart = _apart(lake, sources, [*places[oldest:], first], lake.settings.max_offsets)
    return [*(MicroBatch(ends=ends(lake, sources, versions)) for versions in apart), *ended]


def whole_steps(live: Platform, table: Table, last: MicroBatch) -> list[MicroBatch]:
    """Lists the micro-batches of the lost checkpoint that end between commits, at which the log can be cut, too."""
    ended = Checkpoint.of_table(live.lake.settings, table).ended
    return [batch for batch in ended if batch.is_between_commits] or [last.without_parts()]


def archived_steps(
    in_shadow: Platform, wanted: Sequence[tuple[MicroBatch, RangesOf]], read: Read
) -> Iterator[MicroBatch]:
    """Yields the micro-batches over a shadow's own events, each once these are ingested, the last one twice.

    Args:
        wanted: each micro-batch with all offsets `[start, end)`, by topic and partition, that were read up to its end.
    """
    table = in_shadow.registry.in_order()[-1]
    sources = in_shadow.registry.upstream(table)

    def all_so_far() -> MicroBatch:
        return MicroBatch(
            ends=ends(in_shadow.lake, sources, [in_shadow.lake.version(s.full_name) + 1 for s in sources])
        )

    for batch, ranges in wanted:
        for _ in ingested(in_shadow, ranges, read):
            if any(missing_ranges(in_shadow, ranges).values()):
                yield all_so_far()
        yield replace(all_so_far(), watermark_ms=batch.watermark_ms, number=batch.number)
    last, _ = wanted[-1]
    yield replace(all_so_far(), watermark_ms=last.watermark_ms, number=last.number)  # as Checkpoint.move asks for


def replay_state(in_shadow: Platform, table: Table, plan: Iterable[MicroBatch], settings: Mapping[str, str]) -> None:
    """Runs the table's stream through these micro-batches, into a new checkpoint.

    Args:
        settings: the Spark settings of the lost state, as far as they are known.
    """
    checkpoint = Checkpoint.of_table(in_shadow.lake.settings, table)
    checkpoint.note_definition(definition(table, in_shadow.registry))
    stream = QueryDrivenStream(in_shadow.spark, in_shadow.lake, in_shadow.registry, table)
    settings = {**state_settings(in_shadow.spark), **settings}
    for number, batch in enumerate(plan):
        checkpoint.plan(number, replace(batch, settings=settings))
        finish(stream.start_planned())
        if checkpoint.committed != number:
            raise RuntimeError(f"{table.full_name}: micro-batch {number} was planned, {checkpoint.committed} ended")
        _log.info("remade table=%s batch=%d of=%s", table.full_name, number, batch.number)


def adopt(live: Platform, in_shadow: Platform, table: Table, last: MicroBatch) -> None:
    """Makes the table's stream continue from the new state in place of the lost one.

    It is a new stream with an id of its own, so no commit of the lost stream counts as one of its own. It does not
    change rows that the lost one had closed. The lost checkpoint is kept next to it.
    """
    lost, made = (Checkpoint.of_table(platform.lake.settings, table) for platform in (live, in_shadow))
    if made.ended[-1].ends != list(last.ends):  # it has read a shadow's events
        made.move(last.ends)
    guard = ClosedRowGuard(lost, live.lake, table)
    guard.record_watermark_again()
    StreamFence(Writer(live.lake, table.full_name, live.spark)).claim(made.stream, guard)
    for source in live.registry.upstream(table):
        for version in made.splits.versions_of(source.full_name):
            lost.splits.add(source.full_name, version)
    lost.note_definition(definition(table, live.registry))
    made.take_place_of(lost)


def go_on_after(live: Platform, table: Table, last: MicroBatch) -> None:
    """Makes the stream of a table without state continue at the position of the lost one."""
    checkpoint = Checkpoint.of_table(live.lake.settings, table)
    checkpoint.take_away()
    checkpoint.note_definition(definition(table, live.registry))
    if live.registry.strategy(table).follows_changes:
        name, newest = table.full_name, live.lake.version(table.full_name)
        commits = (commit for v in range(newest, -1, -1) for commit in live.lake.commits(name, v - 1, v))
        own = live.lake.history(name).floor().changes
        with suppress(FileNotFoundError, StopIteration):
            own = next(commit.version for commit in commits if "versions" in commit.info)
        checkpoint.take(FeedPosition(last.number or 0, last.versions, own))
    else:
        checkpoint.plan(0, replace(last, settings={**state_settings(live.spark), **last.settings}))
        checkpoint.end(0)


def _committed(live: Platform, table: Table) -> MicroBatch | None:
    """Returns the newest micro-batch that the table's commits record."""
    lake, sources = live.lake, live.registry.upstream(table)
    info = lake.newest_info(table.full_name, "versions")
    if info is None:
        return None
    known = [int(info["versions"].get(source.full_name, 0)) for source in sources]
    if live.registry.strategy(table).follows_changes:
        return MicroBatch(ends=ends(lake, sources, known), number=int(info["batch"]))
    # A commit of several files may have been read in part, which is not visible here: such a one is read again.
    versions = [_surely_read(lake, source.full_name, version) for source, version in zip(sources, known, strict=True)]
    watermark_ms = info["watermark_ms"] if versions == known else None
    return MicroBatch(ends=ends(lake, sources, versions), watermark_ms=watermark_ms)


def _surely_read(lake: Lake, name: str, version: int) -> int:
    for commit in lake.commits(name, version - 2, version - 1) if version else ():
        return version - (len(commit.added) > 1)
    return version


def _known_versions(lake: Lake, table: Table, sources: Sequence[Topic | Table]) -> list[list[int]]:
    """Lists the input versions at which the last stream's micro-batches ended, by the table's commits, oldest first."""
    ended_at: list[list[int]] = []
    for version in range(lake.version(table.full_name), -1, -1):
        try:
            [commit] = lake.commits(table.full_name, version - 1, version)
        except FileNotFoundError:
            break
        if "versions" in commit.info:
            versions = [int(commit.info["versions"].get(source.full_name, 0)) for source in sources]
            if any(versions) and (not ended_at or _is_before(versions, ended_at[-1])):
                ended_at.append(versions)
    return ended_at[::-1]


def _is_readable(lake: Lake, sources: Sequence[Topic | Table], versions: Sequence[int]) -> bool:
    """Whether the inputs can be read as they were before these versions."""
    from deltalake.exceptions import DeltaError

    try:
        for source, version in zip(sources, versions, strict=True):
            if version:
                lake.open(source.full_name, version - 1)
    except (DeltaError, BadArgument):
        return False
    return True


def _is_before(one: Sequence[int], other: Sequence[int]) -> bool:
    return list(one) != list(other) and all(a <= b for a, b in zip(one, other, strict=True))


def _apart(
    lake: Lake, sources: Sequence[Topic | Table], places: Sequence[Sequence[int]], most: int
) -> Iterator[Sequence[int]]:
    """Yields the first and the last of these positions, and some between them, about `most` rows apart."""
    read = []
    for source, version in zip(sources, places[-1], strict=True):
        commits = list(lake.commits(source.full_name, -1, version - 1, kept=True))
        so_far = accumulate(sum(added.rows or 0 for added in commit.added) for commit in commits)
        read.append(dict(zip((commit.version + 1 for commit in commits), so_far, strict=True)))
    taken = 0
    for place in places:
        rows = sum(rows.get(version, 0) for rows, version in zip(read, place, strict=True))
        if rows - taken >= most or place in (places[0], places[-1]):
            yield place
            taken = rows
