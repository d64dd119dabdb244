"""Decodes a range of the log again with today's code, and carries what differs through every table below."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from batch.log import Log, offsets_at
from batch.publication import Work, publish, reconcile_below
from infra.errors import BadArgument
from tables.declaration import Topic
from tables.decode import OFFSET, PARTITION
from tables.frontier import frontier
from tables.outcome import Outcome, run_name
from tables.registry import load
from tables.setup import Platform, opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from infra.settings import Settings

Offsets = Mapping[int, int]
Place = Offsets | datetime | None


def replay(settings: Settings, topic: str, start: Place = None, end: Place = None) -> list[Outcome]:
    """Decode the offsets `[start, end)` of each partition again and publish what comes out differently.

    A record moves between events and quarantine, or changes; then every table below is reconciled for just the rows
    that this touched. Streams leave these rows to the batch. Running it twice changes nothing the second time.

    Args:
        topic: full or bare name.
        start: partition -> first offset, where partitions that are not named are left out; or the instant from which on
            the broker appended the records; None: the earliest that there is.
        end: partition -> offset after the last, or an instant; None: what ingest has taken in.

    Returns:
        Outcomes of events, quarantine, then of each table below in dependency order.

    Raises:
        BadArgument: offsets that the log has not or ingest has not reached; nothing was touched.
        BrokerUnreachable: nothing was touched.
    """
    declared = load().find_topic(topic)
    with opened(settings, "replay", [declared.domain]) as platform:
        return decode_again(platform, declared, start, end)


def decode_again(platform: Platform, topic: Topic, start: Place, end: Place) -> list[Outcome]:
    """`replay` on a platform that is open."""
    log = Log(platform, [topic.full_name])
    start, end = (offsets_at(platform.lake, topic, p) if isinstance(p, datetime) else p for p in (start, end))
    ranges = _ranges(platform, topic, log.starts(topic.full_name), start, end)
    outcomes = _redecode(platform, topic, log.read(topic, ranges), ranges) if ranges else []
    return outcomes + reconcile_below(platform, topic)


def _ranges(
    platform: Platform, topic: Topic, earliest: Offsets, start: Offsets | None, end: Offsets | None
) -> dict[int, tuple[int, int]]:
    ingested = frontier(platform.lake, topic).ends
    for name, given in (("start", start), ("end", end)):
        unknown = sorted(set(given or {}) - set(earliest))
        if unknown:
            raise BadArgument(
                f"{name} names the partitions {unknown}; {topic.full_name} has {sorted(earliest)}.",
                hint="Write partition:offset, as in 0:1200.",
            )
    ranges = {}
    for partition, there in earliest.items():
        if start is not None and partition not in start:
            continue
        first = there if start is None else start[partition]
        last = ingested.get(partition, 0) if end is None else end.get(partition, ingested.get(partition, 0))
        if not there <= first <= last <= ingested.get(partition, 0):
            raise BadArgument(
                f"{topic.full_name}, partition {partition}: [{first}, {last}) is not within what the log has and "
                f"ingest has taken in: [{there}, {ingested.get(partition, 0)}).",
                hint="Choose offsets within it; `./twofold status` shows them.",
            )
        if first < last:
            ranges[partition] = (first, last)
    return ranges


def _redecode(platform: Platform, topic: Topic, raw: DataFrame, ranges: Mapping[int, tuple[int, int]]) -> list[Outcome]:
    wanted = " OR ".join(
        f"({PARTITION} = {p} AND {OFFSET} >= {first} AND {OFFSET} < {last})" for p, (first, last) in ranges.items()
    )
    work = Work(
        run=run_name("replay"),
        records=sum(last - first for first, last in ranges.values()),
        ranges=len(ranges),
        covered=lambda live: live.where(wanted),
        info={"offsets": {p: list(r) for p, r in ranges.items()}},
    )
    return publish(platform, topic, raw, work)
