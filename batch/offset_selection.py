"""A validated selection of a topic's offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument, NotArchived
from twofold.infra.offset_ranges import Range
from twofold.tables.declare.metadata_columns import APPENDED_AT, OFFSET, PARTITION
from twofold.tables.declare.topic import Topic
from twofold_algebra.sql.names import Dialect

LogPosition = Mapping[int, int] | datetime
"""An offset by partition, or the time at which the broker appended a record, UTC."""


@dataclass(frozen=True, kw_only=True)
class OffsetSelection:
    """A selection of records of a topic; without parameters, all records.

    Attributes:
        start: the first record; with offsets, partitions that it does not name are left out; None: the earliest one.
        end: the exclusive end; None, and for partitions that it does not name: the end of the ingested offsets.
        partitions: only these; None: all.
        archived: only records that only the archive has; None in `end` means as far as it reaches.
    """

    start: LogPosition | None = None
    end: LogPosition | None = None
    partitions: Sequence[int] | None = None
    archived: bool = False

    @classmethod
    def before(cls, end: LogPosition) -> OffsetSelection:
        """Selects all records before an end; with offsets, partitions that it does not name are left out."""
        return cls(start=None if isinstance(end, datetime) else dict.fromkeys(end, 0), end=end)

    @property
    def is_whole(self) -> bool:
        """Whether it selects everything that was ingested."""
        return self == OffsetSelection()

    def sql(self, by: Dialect) -> str:
        """Writes the condition that selects ingested records."""
        return " AND ".join(f"({part})" for part in self._conditions(by)) or "true"

    def takes(self, partition: int) -> bool:
        """Whether it can select offsets of the partition."""
        is_left_out = isinstance(self.start, Mapping) and partition not in self.start
        return not is_left_out and (self.partitions is None or partition in self.partitions)

    def require_valid(self, topic: Topic, there: Collection[int]) -> None:
        """Refuses a selection that the topic cannot have.

        Raises:
            BadArgument: a partition that is not `there`, or an end before its start.
        """
        given = {"start": self.start, "end": self.end, "partitions": self.partitions}
        for name, partitions in given.items():
            unknown = [] if isinstance(partitions, datetime) else sorted(set(partitions or ()) - set(there))
            if unknown:
                raise BadArgument(
                    f"{name} names the partitions {unknown}; {topic.full_name} has {sorted(there)}.",
                    hint="Partitions are numbered from 0; write partition:offset, as in 0:1200.",
                )
        if not self._is_ordered:
            raise BadArgument(f"The end {self.end} is before the start {self.start}.", hint="The end is not included.")

    @property
    def _is_ordered(self) -> bool:
        start, end = self.start, self.end
        if isinstance(start, datetime) and isinstance(end, datetime):
            return start <= end
        if isinstance(start, Mapping) and isinstance(end, Mapping):
            return all(start[p] <= end[p] for p in start.keys() & end.keys())
        return True

    def _conditions(self, by: Dialect) -> Iterator[str]:
        if self.partitions is not None:
            yield f"{PARTITION} IN ({_numbers(self.partitions)})"
        for edge, sign in ((self.start, ">="), (self.end, "<")):
            if isinstance(edge, datetime):
                yield f"{APPENDED_AT} {sign} {by.literal(edge)}"
            elif edge is not None:
                named = [f"{PARTITION} = {p} AND {OFFSET} {sign} {offset}" for p, offset in edge.items()]
                others = [f"{PARTITION} NOT IN ({_numbers(edge)})"] if sign == "<" and edge else []
                yield " OR ".join([*named, *others]) or ("true" if sign == "<" else "false")


def _numbers(partitions: Collection[int]) -> str:
    return ", ".join(map(str, partitions)) or "NULL"


def require_past(topic: Topic, instant: datetime, now: datetime) -> None:
    if instant > now:
        raise NotArchived(
            f"{topic.full_name}: records go on to be appended before {instant.isoformat()}; it is {now.isoformat()}.",
            hint="Ask for an earlier time, or wait until it is past.",
        )


def require_there(topic: Topic, partition: int, asked: Range, there: Range, frontier_of: str) -> None:
    """Refuses a range that ends before it begins, or that exceeds the available offsets."""
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
            hint=f"Choose offsets within it; `{COMMAND} status` shows them.",
        )
