"""Which records of a topic a person means, and whether that can be meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.errors import BadArgument, NotArchived
from infra.ranges import Range
from tables.declaration import Topic

Place = Mapping[int, int] | datetime | None
"""An offset by partition, or the time at which the broker appended a record, UTC; None: the log's own end."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """Which records of a topic are meant: all, when nothing is said.

    Attributes:
        start: the first; with offsets, partitions that it does not name are left out; None: the earliest that there is.
        end: where they end, itself not among them; None, and of partitions that it does not name: what ingest has
            taken in.
        partitions: no others; None: all.
        archived: only records that the archive alone tells; None in `end` means as far as it reaches.
    """

    start: Place = None
    end: Place = None
    partitions: Sequence[int] | None = None
    archived: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing that was ingested is left out."""
        return self == Span()

    def takes(self, partition: int) -> bool:
        """Whether some offsets of the partition can be meant."""
        is_left_out = isinstance(self.start, Mapping) and partition not in self.start
        return not is_left_out and (self.partitions is None or partition in self.partitions)


def require_partitions(topic: Topic, span: Span, there: Mapping[int, object]) -> None:
    """Every partition that is named is one of the topic."""
    named = {"start": span.start, "end": span.end, "partitions": span.partitions}
    for name, given in named.items():
        unknown = [] if given is None or isinstance(given, datetime) else sorted(set(given) - set(there))
        if unknown:
            raise BadArgument(
                f"{name} names the partitions {unknown}; {topic.full_name} has {sorted(there)}.",
                hint="Write partition:offset, as in 0:1200.",
            )


def require_past(topic: Topic, instant: datetime, now: datetime) -> None:
    if instant > now:
        raise NotArchived(
            f"{topic.full_name}: records go on to be appended before {instant.isoformat()}; it is {now.isoformat()}.",
            hint="Ask for an earlier time, or wait until it is past.",
        )


def require_there(topic: Topic, partition: int, asked: Range, there: Range, frontier_of: str) -> None:
    """A range is one, and lies within what there is."""
    (first, last), (earliest, reach) = asked, there
    text = f"{topic.full_name}, partition {partition}: [{first}, {last}) "
    if max(first, last) > reach:
        raise NotArchived(
            f"{text}ends beyond {reach}, the frontier of {frontier_of}.",
            hint=f"Ask for offsets before {reach}, or wait: it moves while records come.",
            topic=topic.full_name,
            partition=partition,
            frontier=reach,
        )
    if not earliest <= first <= last:
        raise BadArgument(
            f"{text}is not within what the log has, [{earliest}, {reach}).",
            hint="Choose offsets within it; `./twofold status` shows them.",
        )
