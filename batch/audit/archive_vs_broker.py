"""Compares a topic's records in the archive and on the broker: contradictions and lost ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twofold.batch.audit.mismatches import Mismatch, find_mismatches
from twofold.batch.audit.missing_offsets import note_transactions
from twofold.batch.log_reader import Log
from twofold.infra.offset_ranges import Ranges, Spans, size, spans, subtract, within
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.events.lost_offsets import gaps, places
from twofold.tables.refresh.open_platform import Platform

Place = tuple[int, int, int]
"""A partition, and the offsets `[start, end)` of it."""
_MOST = 5  # places that a message names


@dataclass(frozen=True, kw_only=True)
class LogCopies:
    """The comparison of a range in the archive and on the broker.

    Attributes:
        archive_alone, both, broker_alone: the number of committed records by location. The archive counts those whose
            commit it can prove without the broker; the broker counts those on its own disk.
        unlike: blocks of offsets whose records differ.
        in_transactions: the number of offsets of markers and aborted records, which consumers never see.
        lost: the number of lost offsets that a person has acknowledged.
        missing: offsets without a record in any copy, and without an explanation.
    """

    archive_alone: int
    both: int
    broker_alone: int
    unlike: Sequence[Mismatch]
    in_transactions: int
    lost: int
    missing: Sequence[Place]

    def faults(self) -> Iterator[str]:
        """Yields the faults, for people."""
        if self.unlike:
            yield f"archive and broker have other records in {format_places([str(block) for block in self.unlike])}"
        if self.missing:
            yield f"no record has the offsets of {format_places([format_place(place) for place in self.missing])}"


def compare_archive_and_broker(platform: Platform, topic: Topic, log: Log, ranges: Ranges, empty: Spans) -> LogCopies:
    """Counts the records of ranges by location, and explains offsets without a record.

    Offsets that transactions explain are recorded in the ledger.
    """
    name, identity = topic.full_name, read_ingested_offsets(platform.lake, topic).log
    lost = [gap for gap in gaps(platform.lake, name) if gap.log == identity]
    holes = subtract(empty, places(lost))
    transactions = note_transactions(platform, topic, log, holes)
    missing = [(p, *hole) for p, here in subtract(holes, transactions).items() for hole in here]
    missing += [(gap.partition, gap.start, gap.end) for gap in lost if gap.is_open and gap.partition in ranges]

    def records(some: Spans) -> int:
        return size(some) - size(within(empty, some))

    archived = log.archived(name, spans(ranges))
    both = log.still_on_broker(name, archived)
    return LogCopies(
        archive_alone=records(archived) - records(both),
        both=records(both),
        broker_alone=records(spans(ranges)) - records(archived),
        unlike=find_mismatches(*log.copies(name, both)) if both else [],
        in_transactions=size(transactions),
        lost=sum(gap.end - gap.start for gap in lost if not gap.is_open),
        missing=sorted(missing),
    )


def format_place(place: Place) -> str:
    """Formats a range of offsets for people."""
    partition, start, end = place
    return f"partition {partition} [{start}, {end})"


def format_places(places: Sequence[str]) -> str:
    """Formats the first places, and the number of others."""
    more = [f"{len(places) - _MOST} more"] if len(places) > _MOST else []
    return " and ".join([", ".join(places[:_MOST]), *more])
