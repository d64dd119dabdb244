"""Decodes a range of the log again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from twofold.batch.ledgers.run_result import RunResult, run_name
from twofold.batch.log_reader import Log
from twofold.batch.offset_selection import OffsetSelection
from twofold.batch.rewrite.accepted_decoding import accept_decoded, lower_decoding
from twofold.batch.rewrite.decoded_records import CAUSE, Work, decode_records
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.infra.offset_ranges import Range, Ranges, condition
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import Accepted, accept, accepted_code
from twofold.tables.refresh.events.decoding_fingerprint import decoding
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.open_platform import Platform

if TYPE_CHECKING:
    pass


def readable(platform: Platform, topic: Topic, span: OffsetSelection) -> dict[int, Range]:
    """Returns the offsets that a replay of a span would read, by partition, without Spark. Raises as `decode`."""
    _require_whole_log(topic)
    return Log(platform, [topic.full_name]).ranges(topic, span, datetime.now(UTC))


def decode(platform: Platform, topic: Topic, span: OffsetSelection) -> list[RunResult]:
    """Replays in a copy: decodes the selected offsets of a topic again, and writes changed results.

    A record changes, or moves between events and quarantine. A replay of the whole log accepts the current decoding.

    Returns:
        Results of events and quarantine; none if the log has no record of the selection.

    Raises:
        BadArgument: offsets that the log does not have, or a compacted topic; nothing was touched.
        NotArchived: the range ends beyond the readable log; nothing was touched. Retryable.
        BrokerUnreachable: nothing was touched.
    """
    _require_whole_log(topic)
    lake, log, run = platform.lake, Log(platform, [topic.full_name]), run_name("replay")
    ranges, info = log.ranges(topic, span, datetime.now(UTC)), {"cause": CAUSE, "run": run}
    if not ranges:
        return []
    before = accepted_code(lake, topic.full_name)
    if not span.is_whole:
        lower_decoding(lake, topic, ranges, info)
    elif before is None or not before.is_of(decoding(topic), whole=True):
        since = {str(partition): first for partition, (first, _) in ranges.items() if first}
        accept(lake, topic.full_name, Accepted(code=decoding(topic), since=since), info=info)
    return _decode_ranges(platform, topic, log, ranges, run)


def finish_decoding(platform: Platform, topic: Topic) -> list[RunResult]:
    """Decodes again all records not known to be of the current code, if it is accepted, then accepts it for all.

    Returns:
        Results of events and quarantine; none if there was nothing to decode.
    """
    lake, name, run = platform.lake, topic.full_name, run_name("replay")
    fact = accepted_code(lake, name)
    if fact is None or fact.through is None or fact.code != decoding(topic):
        return []
    version, ends = lake.version(name), read_ingested_offsets(lake, topic).ends
    left = {p: (first, last) for p, last in ends.items() if (first := fact.through.get(str(p), 0)) < last}
    outcomes = _decode_ranges(platform, topic, Log(platform, [name]), left, run) if left else []
    accept_decoded(lake, name, ends, version, fact, {"cause": CAUSE, "run": run})
    return outcomes


def _decode_ranges(platform: Platform, topic: Topic, log: Log, ranges: Ranges, run: str) -> list[RunResult]:
    work = Work(
        run=run,
        records=sum(last - first for first, last in ranges.values()),
        ranges=len(ranges),
        covered=lambda live: live.where(condition(ranges, PARTITION, OFFSET)),
        info={"offsets": {p: list(r) for p, r in ranges.items()}},
    )
    return decode_records(platform, topic, log.read(topic, ranges), work)


def _require_whole_log(topic: Topic) -> None:
    if topic.compacted:
        raise BadArgument(
            f"{topic.full_name} is compacted: its log no longer has every record that was ingested, so that a replay "
            "would remove events.",
            hint=f"`{COMMAND} redrive {topic.full_name}` decodes quarantined records again. To read what the log still "
            "has, ingest the topic in a new home.",
        )
