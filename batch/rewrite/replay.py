"""Decodes a range of the log again and refreshes every table downstream."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from batch.ledgers.run_result import RunResult, run_name
from batch.log_reader import Log
from batch.offset_selection import OffsetSelection
from batch.rewrite.backfill import accept
from batch.rewrite.publication import CAUSE, Work, publish, reconcile_below
from infra.errors import BadArgument
from infra.offset_ranges import Range, condition
from tables.declare.code_fingerprint import FINGERPRINT
from tables.declare.metadata_columns import OFFSET, PARTITION
from tables.declare.topic import Topic
from tables.refresh.events.decoding_fingerprint import decoding
from tables.refresh.open_platform import Platform


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

    Returns:
        Outcomes of events and quarantine; none where the log has no record of the selection.

    Raises:
        BadArgument: offsets that the log has not, or a compacted topic; nothing was touched.
        NotArchived: the range ends beyond what can be read yet; nothing was touched. Retryable.
        BrokerUnreachable: nothing was touched.
    """
    _require_whole_log(topic)
    log = Log(platform, [topic.full_name])
    ranges = log.ranges(topic, span, datetime.now(UTC))
    if not ranges:
        return []
    work = Work(
        run=run_name("replay"),
        records=sum(last - first for first, last in ranges.values()),
        ranges=len(ranges),
        covered=lambda live: live.where(condition(ranges, PARTITION, OFFSET)),
        info={"offsets": {p: list(r) for p, r in ranges.items()}},
    )
    outcomes = publish(platform, topic, log.read(topic, ranges), work)
    if span.is_whole:
        accept_decoding(platform, topic, {"cause": CAUSE, "run": work.run})
    return outcomes


def accept_decoding(platform: Platform, topic: Topic, info: Mapping[str, object]) -> None:
    """Note that all events of a topic are what its records are decoded to today, where no commit says so."""
    accept(platform.lake, topic.full_name, {FINGERPRINT: decoding(topic)}, info)


def _require_whole_log(topic: Topic) -> None:
    if topic.compacted:
        raise BadArgument(
            f"{topic.full_name} is compacted: its log no longer has every record that was ingested, so that a replay "
            "would remove events.",
            hint=f"`./twofold redrive {topic.full_name}` decodes quarantined records again. To read what the log still "
            "has, ingest the topic in a new home.",
        )
