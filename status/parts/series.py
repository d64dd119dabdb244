"""Numbers of topics and tables over time: from their commits, and from what each look at the platform finds."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.tables.refresh.events.ingested_offsets import APPENDED_MS, INGEST
from twofold.tables.refresh.events.lateness import BOUNDS_MS, LATENESS


class Span(NamedTuple):
    """A time to look back on: so many buckets, each so many seconds wide."""

    name: str
    width_s: int
    buckets: int


SPANS = (Span("6 hours", 300, 72), Span("3 days", 3_600, 72), Span("5 weeks", 86_400, 35))
CLASSES = tuple(zip(BOUNDS_MS, (*BOUNDS_MS[1:], None), strict=True))
"""The classes of lateness `[lower, upper)`, milliseconds; the last one has no upper bound."""
_LATEST_FOLDED = 500
"""Commits since the last look that are read at most; what came before is a gap."""


@dataclass(frozen=True, kw_only=True)
class SeriesPoint:
    """Facts of a topic or a table in a bucket of time, or at a moment; None: not known.

    Attributes:
        written: rows of a table that its stream changed; `corrected`: that batch work did.
        freshness_s: seconds from the broker's append of the newest record to the commit of its rows; the greatest.
        rows: of a table, at the end.
        produced, ingested: the end offsets of a topic, summed over partitions, at the end; `at_ms`: when that was.
        lag: records of a topic that were not ingested; the most.
        lateness: lower bound, milliseconds -> records of a topic that were ingested so late, from commits that say it.
    """

    written: int | None = None
    corrected: int | None = None
    freshness_s: float | None = None
    rows: int | None = None
    produced: int | None = None
    ingested: int | None = None
    at_ms: int | None = None
    lag: int | None = None
    lateness: Mapping[str, int] | None = None

    def then(self, later: SeriesPoint) -> SeriesPoint:
        """Returns what is known of this time and a later one together."""
        values = self.known
        for name, value in later.known.items():
            values[name] = _JOINS[name](values[name], value) if name in values and name in _JOINS else value
        return SeriesPoint(**values)

    @property
    def lacks_lateness(self) -> bool:
        """Whether it is of a commit of ingest that does not say how late its records were."""
        return self.lateness is not None and not self.lateness

    @property
    def known(self) -> dict[str, Any]:
        """The values that are known."""
        return {field.name: value for field in fields(SeriesPoint) if (value := getattr(self, field.name)) is not None}


def _counted(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return dict(Counter(one) + Counter(other))


_JOINS: Mapping[str, Callable[[Any, Any], Any]] = {
    "written": operator.add,
    "corrected": operator.add,
    "freshness_s": max,
    "lag": max,
    "lateness": _counted,
}
"""How values of two times are one; of others the later one holds."""


@dataclass(frozen=True, kw_only=True)
class SeriesUpdate:
    """News of one topic or table.

    Attributes:
        after: version of its Delta table that the commits follow; None: none was known.
        commits: moments, epoch milliseconds, with what a commit of that time says.
        sample: what is true now.
    """

    after: int | None
    commits: Sequence[tuple[int, SeriesPoint]]
    sample: SeriesPoint


def oldest_folded(after: int | None, through: int) -> int:
    """Returns the version after which commits up to a version are read."""
    return max(-1 if after is None else after, through - _LATEST_FOLDED)


def point_of(commit: LoggedCommit) -> SeriesPoint | None:
    """Returns what a commit says of a topic's events or a table; None if it changed no row."""
    if not commit.changes:
        return None
    cause, appended_ms = commit.info.get("cause"), commit.info.get(APPENDED_MS)
    if cause == INGEST:
        return SeriesPoint(lateness=commit.info.get(LATENESS, {}))
    if "run" in commit.info:
        return SeriesPoint(corrected=commit.rows_changed)
    if cause != "stream":
        return None
    waited_s = None if appended_ms is None else max(0.0, (commit.timestamp_ms - int(appended_ms)) / 1_000)
    return SeriesPoint(written=commit.rows_changed, freshness_s=waited_s)


def merged(points: Iterable[SeriesPoint]) -> SeriesPoint:
    """Returns what is known of all these times together, given oldest first."""
    whole = SeriesPoint()
    for point in points:
        whole = whole.then(point)
    return whole


def class_of(counts: Mapping[int, int], percent: int) -> tuple[int, int | None] | None:
    """Returns the least class of lateness that so many of the records are in or below; None without records.

    Args:
        counts: lower bound -> records.
        percent: of the records, from 1; 100 is for the latest one.
    """
    wanted, so_far = percent * sum(counts.values()), 0
    for lower, upper in CLASSES:
        so_far += 100 * counts.get(lower, 0)
        if so_far >= wanted > 0:
            return lower, upper
    return None
