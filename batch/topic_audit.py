"""Holds the log against events and quarantine, record by record, and certifies what they hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batch.log import Log, Ranges
from infra.errors import BadArgument, UnexplainedDifference
from tables.certificates import Block, blocks_of, differing, read_certificate, write_certificate
from tables.declaration import Topic
from tables.decode import OFFSET, PARTITION, accepted, decode_frame, rejected
from tables.frontier import frontier
from tables.lake import QUARANTINE
from tables.outcome import run_name
from tables.registry import load
from tables.setup import Platform, opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from infra.settings import Settings

Read = Callable[[Topic, Ranges], "DataFrame"]
_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class TopicReport:
    """What was compared.

    Attributes:
        against: the log, or an earlier certificate.
        records: that the two tables hold in the range.
        differing: (partition, start, end) of the blocks of offsets that are not the same on both sides.
        versions: of events and of quarantine.
    """

    topic: str
    against: str
    records: int
    blocks: int
    differing: Sequence[tuple[int, int, int]]
    versions: tuple[int, int]
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.differing

    def raise_if_wrong(self) -> None:
        """Raises:
        UnexplainedDifference: names the first blocks.
        """
        if self.differing:
            told = ", ".join(f"partition {p} [{start}, {end})" for p, start, end in self.differing[:_NAMED])
            more = f", and {len(self.differing) - _NAMED} more" if len(self.differing) > _NAMED else ""
            raise UnexplainedDifference(
                f"{self.topic}: events and quarantine are not what {self.against} says, in {len(self.differing)} of "
                f"{self.blocks} blocks of offsets: {told}{more}.",
                hint=f"`./twofold replay {self.topic} --from 0:START --to 0:END` decodes a block again and publishes "
                "what differs.",
                topics=[self.topic],
            )


def audit_topic(settings: Settings, name: str) -> TopicReport:
    """Decode all that there is of a topic with today's code, and compare it with what was ingested.

    Blocks of offsets are compared by counts and by hashes that know no order. Where all are equal, a certificate of the
    two tables at their versions is written, which `check_certificate` can hold them against without the log.

    Raises:
        BadArgument: an unknown topic.
        BrokerUnreachable: retryable.
        LogGap: neither the archive nor the broker has all of what was ingested.
    """
    topic = load().find_topic(name)
    with opened(settings, "audit", [topic.domain]) as platform:
        log = Log(platform, [topic.full_name])
        return compare_with_log(platform, topic, log.starts(topic.full_name), log.read)


def compare_with_log(platform: Platform, topic: Topic, starts: dict[int, int], read: Read) -> TopicReport:
    """`audit_topic` on a platform that is open, of a log that begins at these offsets."""
    began = time.monotonic()
    # The frontier first: whatever is committed after it lies beyond.
    ends = frontier(platform.lake, topic).ends
    versions = platform.lake.version(topic.full_name), platform.lake.version(topic.full_name + QUARANTINE)
    ranges = {p: (start, ends[p]) for p, start in starts.items() if ends.get(p, 0) > start}
    decoded = decode_frame(read(topic, ranges), topic, None).persist()
    try:
        log = blocks_of(accepted(decoded, topic), rejected(decoded), topic)
    finally:
        decoded.unpersist()
    live = _held(platform, topic, versions, ranges)
    report = _report(topic, "the log", live, log, versions, began)
    if report.passed:
        write_certificate(platform.lake, topic, run_name("certificate"), versions, live)
    return report


def check_certificate(platform: Platform, topic: Topic, version: int | None = None) -> TopicReport:
    """Hold the two tables, as they were at the versions of a certificate, against it; no log is needed.

    Args:
        version: of events; None: the newest that has one.

    Raises:
        BadArgument: there is none.
    """
    began = time.monotonic()
    found = read_certificate(platform.lake, topic, version)
    if found is None:
        what = f"version {version} of {topic.full_name}" if version is not None else topic.full_name
        raise BadArgument(
            f"There is no certificate of {what}.", hint=f"`./twofold audit {topic.full_name}` writes one."
        )
    versions, certified = found
    starts = {b.partition: min(o.start for o in certified if o.partition == b.partition) for b in certified}
    ranges = {p: (start, max(b.end for b in certified if b.partition == p)) for p, start in starts.items()}
    return _report(topic, "its certificate", _held(platform, topic, versions, ranges), certified, versions, began)


def _held(platform: Platform, topic: Topic, versions: tuple[int, int], ranges: Ranges) -> list[Block]:
    wanted = " OR ".join(f"({PARTITION} = {p} AND {OFFSET} >= {a} AND {OFFSET} < {b})" for p, (a, b) in ranges.items())
    events, quarantine = (
        platform.lake.frame(platform.spark, name, version).where(wanted or "false")
        for name, version in zip((topic.full_name, topic.full_name + QUARANTINE), versions, strict=True)
    )
    return blocks_of(events, quarantine, topic)


def _report(
    topic: Topic, against: str, live: Sequence[Block], other: Sequence[Block], versions: tuple[int, int], began: float
) -> TopicReport:
    return TopicReport(
        topic=topic.full_name,
        against=against,
        records=sum(block.events + block.quarantined for block in live),
        blocks=len({(b.partition, b.start) for b in (*live, *other)}),
        differing=differing(live, other),
        versions=versions,
        seconds=time.monotonic() - began,
    )
