"""Compares archive, broker, events and quarantine of a topic, and writes certificates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from twofold.batch.audit.archive_vs_broker import (
    LogCopies,
    Place,
    compare_archive_and_broker,
    format_place,
    format_places,
)
from twofold.batch.audit.missing_offsets import missing_offsets
from twofold.batch.audit.topic_certificates import Block, blocks_of, differing, read_certificate, write_certificate
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import run_name
from twofold.batch.log_reader import Log
from twofold.batch.offset_selection import OffsetSelection
from twofold.infra import COMMAND
from twofold.infra.delta.lake import QUARANTINE
from twofold.infra.errors import BadArgument, UnexplainedDifference
from twofold.infra.offset_ranges import Ranges, condition
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import accepted, decode_frame, rejected
from twofold.tables.refresh.open_platform import Platform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHOLE = OffsetSelection()


@dataclass(frozen=True, kw_only=True)
class TopicReport:
    """The result of a topic's audit.

    Attributes:
        against: the log, or an earlier certificate.
        records: the number of records that the two tables hold in the range.
        differing: the blocks of offsets that differ.
        versions: of events and of quarantine.
        sides: the copies of the log; None if a certificate was used instead.
    """

    topic: str
    against: str
    records: int
    blocks: int
    differing: Sequence[Place]
    versions: tuple[int, int]
    seconds: float
    sides: LogCopies | None = None

    @property
    def passed(self) -> bool:
        return not self.faults

    @property
    def faults(self) -> list[str]:
        """The faults, for people; empty if there are none."""
        reasons = list(self.sides.faults()) if self.sides else []
        if self.differing:
            reasons.append(
                f"events and quarantine are not what {self.against} says, in {len(self.differing)} of {self.blocks} "
                f"blocks of offsets: {format_places([format_place(place) for place in self.differing])}"
            )
        return reasons

    def raise_if_wrong(self) -> None:
        """Refuses to succeed if the audit found a fault.

        Raises:
            UnexplainedDifference: names the first places of each kind.
        """
        if self.faults:
            raise UnexplainedDifference(
                f"{self.topic}: {'; '.join(self.faults)}.", hint=self._hint(), topics=[self.topic]
            )

    def _hint(self) -> str:
        if self.sides and self.sides.unlike:
            return (
                "One of the two copies was changed after it was written. Restore the segment of the archive before the "
                f"broker gives up its own copy; `{COMMAND} status` says when that is."
            )
        if self.sides and self.sides.missing:
            return f"`{COMMAND} acknowledge` notes who knows of offsets that are in ledger.gaps; others were skipped."
        return (
            f"`{COMMAND} replay {self.topic} --from 0:START --to 0:END` decodes a block again and publishes what "
            "differs."
        )


def compare_with_log(platform: Platform, topic: Topic, log: Log, span: OffsetSelection = _WHOLE) -> TopicReport:
    """Decodes a topic's log with the current code, and compares the result with the ingested records.

    Blocks of offsets are compared by counts and by hashes that do not depend on the order: events and quarantine with
    the log, and the archive with the broker as far as both have the records. Every offset must have a record, or a
    known reason for its absence. If a whole topic has no fault, a certificate of the two tables at their versions is
    written, with which `check_certificate` can compare them later without the log; a part of a topic gets none. The
    ledger of runs records what was found of a whole topic.

    Raises:
        BadArgument: a span that the topic cannot have.
        NotArchived: the span ends beyond the readable log. Retryable.
        BrokerUnreachable: retryable.
        LogGap: neither the archive nor the broker has all of the ingested offsets.
    """
    began = time.monotonic()
    # The ranges first: whatever is committed after it lies beyond them.
    ranges = log.ranges(topic, span, datetime.now(UTC))
    versions = platform.lake.version(topic.full_name), platform.lake.version(topic.full_name + QUARANTINE)
    decoded = decode_frame(log.read(topic, ranges), topic, None).persist()
    try:
        live = _held(platform, topic, versions, ranges)
        # The log of a compacted topic lacks records that were ingested.
        still = decoded.select(PARTITION, OFFSET) if topic.compacted else None
        compared = live if still is None else _held(platform, topic, versions, ranges, still)
        by_log = blocks_of(accepted(decoded, topic), rejected(decoded), topic)
        is_dense = sum(b.events + b.quarantined for b in by_log) == sum(end - start for start, end in ranges.values())
        empty = {} if is_dense else missing_offsets(decoded, ranges)
    finally:
        decoded.unpersist()
    report = _report(topic, "the log", compared, by_log, versions, began)
    report = replace(
        report, sides=compare_archive_and_broker(platform, topic, log, ranges, empty), seconds=time.monotonic() - began
    )
    if span.is_whole:
        counts = {"records": report.records, "faults": len(report.faults)}
        Ledgers(platform.lake).record_topic_audit(topic.full_name, "audit_log", **counts)
    if report.passed and span.is_whole:
        write_certificate(platform.lake, topic, run_name("certificate"), versions, live)
    return report


def check_certificate(platform: Platform, topic: Topic, version: int | None = None) -> TopicReport:
    """Compares the two tables, at the versions of a certificate, with that certificate; reads no log.

    Args:
        version: of events; None: the newest with a certificate.

    Raises:
        BadArgument: there is no certificate.
    """
    began = time.monotonic()
    certificate = read_certificate(platform.lake, topic, version)
    if certificate is None:
        what = f"version {version} of {topic.full_name}" if version is not None else topic.full_name
        raise BadArgument(
            f"There is no certificate of {what}.", hint=f"`{COMMAND} audit {topic.full_name}` writes one."
        )
    versions, certified = certificate
    starts = {b.partition: min(o.start for o in certified if o.partition == b.partition) for b in certified}
    ranges = {p: (start, max(b.end for b in certified if b.partition == p)) for p, start in starts.items()}
    return _report(topic, "its certificate", _held(platform, topic, versions, ranges), certified, versions, began)


def _held(
    platform: Platform, topic: Topic, versions: tuple[int, int], ranges: Ranges, places: DataFrame | None = None
) -> list[Block]:
    """Returns the blocks of the two tables; with `places`, only of the records at these places."""
    predicate = condition(ranges, PARTITION, OFFSET)
    events, quarantine = (
        platform.lake.frame(platform.spark, name, version).where(predicate)
        for name, version in zip((topic.full_name, topic.full_name + QUARANTINE), versions, strict=True)
    )
    if places is not None:
        events, quarantine = (rows.join(places, [PARTITION, OFFSET], "left_semi") for rows in (events, quarantine))
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
