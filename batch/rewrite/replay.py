"""Decodes a range of the log again and refreshes every table downstream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from batch.ledgers.run_result import RunResult, run_name
from batch.log_reader import Log
from batch.offset_selection import OffsetSelection
from batch.rewrite.publication import CAUSE, Work, publish, reconcile_below
from infra.delta.delta_writer import CommitTag, Writer
from infra.delta.lake import QUARANTINE, Lake
from infra.errors import BadArgument
from infra.offset_ranges import Range, Ranges, condition
from tables.declare.code_fingerprint import FINGERPRINT
from tables.declare.metadata_columns import OFFSET, PARTITION
from tables.declare.topic import Topic
from tables.refresh.acceptance import Accepted, accept, accepted_code
from tables.refresh.events.decoding_fingerprint import decoding
from tables.refresh.events.ingested_offsets import INGEST, read_ingested_offsets
from tables.refresh.open_platform import Platform

if TYPE_CHECKING:
    from deltalake import DeltaTable


def readable(platform: Platform, topic: Topic, span: OffsetSelection) -> dict[int, Range]:
    """The offsets that a replay of a span would read, by partition; no Spark is started. Raises as `decode_again`."""
    _require_whole_log(topic)
    return Log(platform, [topic.full_name]).ranges(topic, span, datetime.now(UTC))


def decode_again(platform: Platform, topic: Topic, span: OffsetSelection) -> list[RunResult]:
    """Replay: decode the chosen offsets of a topic again, and carry what comes out differently through all tables.

    A record moves between events and quarantine, or changes; then every table below is reconciled for just the rows
    that this touched. Streams leave these rows to the batch. Running it twice changes nothing the second time.

    Returns:
        Outcomes of events, quarantine, then of each table below in dependency order.

    Raises: as `decode`.
    """
    return decode(platform, topic, span) + reconcile_below(platform, topic)


def decode(platform: Platform, topic: Topic, span: OffsetSelection) -> list[RunResult]:
    """Decode the chosen offsets of a topic again, and publish what comes out differently in its two tables.

    All of the log accepts how records are decoded today.

    Returns:
        Outcomes of events and quarantine; none where the log has no record of the selection.

    Raises:
        BadArgument: offsets that the log has not, or a compacted topic; nothing was touched.
        NotArchived: the range ends beyond what can be read yet; nothing was touched. Retryable.
        BrokerUnreachable: nothing was touched.
    """
    _require_whole_log(topic)
    lake, log, run = platform.lake, Log(platform, [topic.full_name]), run_name("replay")
    ranges = log.ranges(topic, span, datetime.now(UTC))
    if not ranges:
        return []
    info: dict[str, object] = {"cause": CAUSE, "run": run}
    if not span.is_whole:
        lower_decoding(lake, topic, ranges, info)
        return _publish(platform, topic, log, ranges, run)
    begin_decoding(lake, topic, info)
    version, ranges = lake.version(topic.full_name), log.ranges(topic, span, datetime.now(UTC))
    outcomes = _publish(platform, topic, log, ranges, run)
    since, through = ({str(p): bounds[side] for p, bounds in ranges.items()} for side in (0, 1))
    accept_decoding(
        lake, topic, {**info, "since": {p: first for p, first in since.items() if first}, "through": through}, version
    )
    return outcomes


def finish_decoding(platform: Platform, topic: Topic, plan: Mapping[str, Any]) -> list[RunResult]:
    """Decode again what came since a plan was made, by whatever code, and accept how records are decoded today.

    Args:
        plan: what `decode` said last in the plan's copy.
    """
    lake, run = platform.lake, run_name("replay")
    info = {"cause": CAUSE, "run": run}
    version, ends = lake.version(topic.full_name), read_ingested_offsets(lake, topic).ends
    left = {p: (first, last) for p, last in ends.items() if (first := int(plan["through"].get(str(p), 0))) < last}
    outcomes = _publish(platform, topic, Log(platform, [topic.full_name]), left, run) if left else []
    through = {str(p): last for p, last in ends.items()}
    accept_decoding(lake, topic, {**info, "since": plan["since"], "through": through}, version)
    return outcomes


def begin_decoding(lake: Lake, topic: Topic, info: Mapping[str, object]) -> None:
    """Keep ingest of other code out of the topic's two tables: events are on the way to today's decoding."""
    name, fact = topic.full_name, accepted_code(lake, topic.full_name)
    if fact and fact.is_of(decoding(topic), whole=True):
        return
    accept(lake, name, Accepted(code=decoding(topic), through={}), info=info)
    quarantine = Writer(lake, name + QUARANTINE)
    nothing = pa.schema(quarantine.newest().schema()).empty_table()
    while quarantine.append(nothing, CommitTag(app=INGEST, version=quarantine.next_number(INGEST), info=info)).skipped:
        pass


def accept_decoding(lake: Lake, topic: Topic, info: Mapping[str, Any], version: int) -> None:
    """Accept today's decoding of all events; up to some offsets, where others were ingested by other code since.

    Args:
        info: what the commit says of itself; of the offsets that were decoded `since`, which are not 0, and `through`.
        version: of the events, before these offsets were asked for.
    """
    name, fact = topic.full_name, accepted_code(lake, topic.full_name)
    if fact is None or fact.code != decoding(topic) or fact.is_whole:
        return
    whole = Accepted(code=fact.code, since=info["since"])

    def is_of_one_code(table: DeltaTable) -> bool:
        commits = lake.commits(name, version, table.version())
        return all(commit.info.get(FINGERPRINT, fact.code) == fact.code for commit in commits)

    if not accept(lake, name, whole, instead_of=fact, info=info, while_=is_of_one_code):
        accept(lake, name, replace(whole, through=info["through"]), instead_of=fact, info=info)


def lower_decoding(lake: Lake, topic: Topic, ranges: Ranges, info: Mapping[str, object]) -> None:
    """Note which records are about to be decoded by code that is not the accepted one."""
    name = topic.full_name
    while (fact := accepted_code(lake, name)) and fact.code != decoding(topic):
        ends = {str(p): last for p, last in read_ingested_offsets(lake, topic).ends.items()}
        known = ends if fact.through is None else {**dict.fromkeys(ends, 0), **fact.through}
        through = {**known, **{str(p): min(first, known.get(str(p), first)) for p, (first, _) in ranges.items()}}
        if accept(lake, name, replace(fact, through=through), instead_of=fact, info=info):
            return


def _publish(platform: Platform, topic: Topic, log: Log, ranges: Ranges, run: str) -> list[RunResult]:
    work = Work(
        run=run,
        records=sum(last - first for first, last in ranges.values()),
        ranges=len(ranges),
        covered=lambda live: live.where(condition(ranges, PARTITION, OFFSET)),
        info={"offsets": {p: list(r) for p, r in ranges.items()}},
    )
    return publish(platform, topic, log.read(topic, ranges), work)


def _require_whole_log(topic: Topic) -> None:
    if topic.compacted:
        raise BadArgument(
            f"{topic.full_name} is compacted: its log no longer has every record that was ingested, so that a replay "
            "would remove events.",
            hint=f"`./twofold redrive {topic.full_name}` decodes quarantined records again. To read what the log still "
            "has, ingest the topic in a new home.",
        )
