"""Topics and tables over time, by the buckets of the store; a time without a look is a gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from markupsafe import Markup

from twofold.features.page.charts import Series, classes, lines, stacked_bars
from twofold.features.page.platform_status import PlatformStatus
from twofold.infra.text.printable import shown_duration
from twofold.status.catalog import Entry
from twofold.status.parts.series import CLASSES, SPANS, SeriesPoint, Span, class_of, merged
from twofold.status.store import Store

_HEAD, _LABELS = "from", {300: "%H:%M", 3_600: "%d %b %H:%M", 86_400: "%d %b"}
_FEWEST = 12
"""Buckets that are drawn at least, where the platform is younger than the span."""
_DRAINS_OVER_S = 3_600
"""How fast a topic catches up is judged by so much of the time before."""


@dataclass(frozen=True, kw_only=True)
class OverTime:
    """A topic or a table over a span of time.

    Attributes:
        drawings: empty if nothing is known of that time.
    """

    span: Span
    drawings: Sequence[Markup]


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """How late the records of a topic were.

    Attributes:
        records: that were counted.
        shares: name of a share of the records -> how late they were at most, in words.
    """

    records: int
    shares: Sequence[tuple[str, str]]
    drawing: Markup | None


def chosen_span(name: str) -> Span:
    """Returns the span of this name, else the shortest."""
    return next((span for span in SPANS if span.name == name), SPANS[0])


def table_over_time(store: Store, platform: PlatformStatus, name: str, span: Span) -> OverTime:
    """Draws what changed in a table, how fresh it was, and its number of rows."""
    buckets = _fitted(store.series(name, span, platform.now.at))
    labels = _labels(span, buckets)
    written, corrected = _values(buckets, "written"), _values(buckets, "corrected")
    changed = [("the stream", "s", written), ("batch work", "f", corrected)]
    drawings = []
    if any(any(values) for _, _, values in changed):
        drawings.append(stacked_bars("Changed rows", _HEAD, labels, [Series(*part) for part in changed]))
        shares = [_share(stream, batch) for stream, batch in zip(written, corrected, strict=True)]
        title = "Rows that batch work had to correct, of all that changed, percent"
        drawings.append(lines(title, _HEAD, labels, [Series("percent", "fixed", shares)]))
    drawings += _line("Visible after, seconds, the greatest", labels, "seconds", _values(buckets, "freshness_s"))
    drawings += _line("Rows", labels, "rows", _carried(_values(buckets, "rows")))
    return OverTime(span=span, drawings=drawings)


def topic_over_time(store: Store, platform: PlatformStatus, name: str, span: Span) -> OverTime:
    """Draws how many records a topic got and ingest took, and how many waited."""
    buckets = _fitted(store.series(name, span, platform.now.at))
    labels = _labels(span, buckets)
    rates = [
        Series("produced", "line", _rates(buckets, "produced")),
        Series("ingested", "fixed", _rates(buckets, "ingested")),
    ]
    drawings = []
    if any(value is not None for series in rates for value in series.values):
        drawings.append(lines("Records a second", _HEAD, labels, rates))
    drawings += _line("Records that waited, the most", labels, "records", _values(buckets, "lag"))
    return OverTime(span=span, drawings=drawings)


def catch_up_s(store: Store, platform: PlatformStatus, name: str, lag: int | None) -> float | None:
    """Returns in how many seconds no record of a topic will wait if ingest goes on as it did; None: it will not."""
    if not lag:
        return None
    points = [point for _, point in store.series(name, SPANS[0], platform.now.at) if point]
    both = [
        (point.at_ms, point.produced - point.ingested)
        for point in points
        if point.at_ms and point.produced is not None and point.ingested is not None
    ]
    both = [point for point in both if both[-1][0] - point[0] <= _DRAINS_OVER_S * 1_000]
    if len(both) < 2:
        return None
    (first_ms, waited), (last_ms, waits) = both[0], both[-1]
    drained = (waited - waits) / (last_ms - first_ms) * 1_000 if last_ms > first_ms else 0.0
    return lag / drained if drained > 0 else None


def lateness(store: Store, platform: PlatformStatus, entry: Entry) -> Lateness:
    """Says how late the records of a topic were in the longest span, with the delays of the tables that read it."""
    points = [point for _, point in store.series(entry.name, SPANS[-1], platform.now.at) if point]
    counts = {int(bound): records for bound, records in (merged(points).lateness or {}).items()}
    shares = [(name, class_of(counts, percent)) for name, percent in (("p50", 50), ("p95", 95), ("latest", 100))]
    delays: dict[int, list[str]] = {}
    for reader in entry.readers:
        if reader in platform.catalog and (delay_ms := platform.catalog[reader].watermark_ms) is not None:
            delays.setdefault(delay_ms, []).append(reader.partition(".")[2])
    rules = [
        (_place(ms), f"{shown_duration(ms / 1_000)}: {', '.join(names[:2])}{' ...' * (len(names) > 2)}")
        for ms, names in sorted(delays.items())
    ]
    drawing = None
    if counts:
        named = [(_class(bound), counts.get(bound, 0)) for bound, _ in CLASSES]
        drawing = classes(
            "Records by how late they were, and the delays of the tables' watermarks", "late by", named, rules
        )
    return Lateness(
        records=sum(counts.values()),
        shares=[(name, _bounds_in_words(found)) for name, found in shares if found],
        drawing=drawing,
    )


def _fitted(buckets: Sequence[tuple[datetime, SeriesPoint | None]]) -> Sequence[tuple[datetime, SeriesPoint | None]]:
    """Leaves out the time before the first bucket that has a point."""
    first = next((n for n, (_, point) in enumerate(buckets) if point), 0)
    return buckets[min(first, len(buckets) - _FEWEST) :]


def _labels(span: Span, buckets: Sequence[tuple[datetime, SeriesPoint | None]]) -> list[str]:
    return [f"{start:{_LABELS[span.width_s]}}" for start, _ in buckets]


def _values(buckets: Sequence[tuple[datetime, SeriesPoint | None]], name: str) -> list[float | None]:
    return [getattr(point, name) if point else None for _, point in buckets]


def _line(title: str, labels: Sequence[str], unit: str, values: Sequence[float | None]) -> list[Markup]:
    has_values = any(value is not None for value in values)
    return [lines(title, _HEAD, labels, [Series(unit, "line", values)])] if has_values else []


def _carried(values: Sequence[float | None]) -> list[float | None]:
    """Fills gaps between known numbers of rows with the one before, since only commits change it."""
    carried: list[float | None] = []
    for value in values:
        carried.append(value if value is not None or not carried else carried[-1])
    return carried


def _share(stream: float | None, batch: float | None) -> float | None:
    whole = (stream or 0) + (batch or 0)
    return 100 * (batch or 0) / whole if whole else None


def _rates(buckets: Sequence[tuple[datetime, SeriesPoint | None]], name: str) -> list[float | None]:
    """Returns the growth of an offset a second since the bucket before, where both are known."""
    return [None, *(_rate(before, point, name) for (_, before), (_, point) in pairwise(buckets))]


def _rate(before: SeriesPoint | None, point: SeriesPoint | None, name: str) -> float | None:
    first, last = (getattr(one, name) if one else None for one in (before, point))
    waited_ms = (point.at_ms or 0) - (before.at_ms or 0) if before and point else 0
    if first is None or last is None or waited_ms <= 0:
        return None
    return float(max(0.0, (last - first) / waited_ms * 1_000))


def _place(delay_ms: int) -> float:
    """Returns the place of a delay among the classes of lateness."""
    for n, (lower, upper) in enumerate(CLASSES):
        if upper is not None and delay_ms < upper:
            return n + (delay_ms - lower) / (upper - lower)
    return len(CLASSES) - 0.5


def _class(bound_ms: int) -> str:
    return _length(bound_ms) if bound_ms else "in time"


def _length(ms: int) -> str:
    for unit, of_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= of_ms:
            return f"{ms // of_ms} {unit}"
    return f"{ms // 1_000} s"


def _bounds_in_words(bounds: tuple[int, int | None]) -> str:
    lower, upper = bounds
    if upper is None:
        return f"{_length(lower)} or more"
    return f"{_length(lower)} to {_length(upper)}" if lower else f"under {_length(upper)}"
