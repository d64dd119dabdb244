"""Charts of the life of a row: a value and the watermark over processing time, on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from twofold.features.page.charts import FOOT, GRID, HEAD, HEIGHT, LEFT, LINE, RULE, Series, figure, key_of, text_at
from twofold.infra.text.printable import shown
from twofold.status.window_life import Life, Marks, Value

_OPEN_ENDS, _ENDS = 56.0, 97.0  # percent: where the row is closed, and the last correction
_LOW = 74  # height of the chart of the watermark
_STEPS = Markup(
    '<svg viewBox="0 0 100 {height}" width="100%" height="{height}" preserveAspectRatio="none">'
    '<path class="alone" d="{alone}"/><path class="line" d="{line}"/><path class="fixed" d="{fixed}"/></svg>'
)
_DOT = Markup('<a href="#step-{}" aria-label="{}"><circle class="{}" cx="{:.2f}%" cy="{:.1f}" r="{}"/></a>')
_SHADE = Markup('<rect class="shade" x="{}%" y="0" width="{}%" height="{}"/>')


@dataclass(frozen=True)
class _Axis:
    """Processing time from left to right: even until the row is closed, by the logarithm of the time after that."""

    first: datetime
    ends: datetime
    last: datetime

    def x(self, at: datetime) -> float:
        """Returns the place of a moment, percent."""
        if at <= self.ends:
            whole = (self.ends - self.first).total_seconds() or 1.0
            return LEFT + 1 + (at - self.first).total_seconds() / whole * (_OPEN_ENDS - LEFT - 1)
        longest = math.log(max((self.last - self.ends).total_seconds(), 1.0) + 1)
        return _OPEN_ENDS + math.log((at - self.ends).total_seconds() + 1) / longest * (_ENDS - _OPEN_ENDS)


def _axis(life: Life, marks: Marks) -> _Axis:
    values = [*life.streamed, *life.corrected]
    streamed = life.streamed or values[:1]
    ends = max([streamed[-1].at, *([marks.closed_at] if marks.closed_at else [])])
    return _Axis(streamed[0].at, ends, max(values[-1].at, ends))


def life_chart(life: Life, marks: Marks) -> Markup:
    """Draws the values that a column of a row had, with those of the stream alone."""
    values = [*life.streamed, *life.corrected]
    known = [one.value for one in values if one.value is not None]
    low, high = min(known), max(known)
    margin = (high - low) * 0.15 or abs(high) * 0.1 or 1.0
    low, high = low - margin, high + margin
    axis = _axis(life, marks)

    def y_of(value: float) -> float:
        return HEIGHT - FOOT - (value - low) / (high - low) * (HEIGHT - FOOT - HEAD)

    def stepped(some: Sequence[Value], end: float) -> str:
        parts, is_drawn = [], False
        for one in some:
            if one.value is None:
                is_drawn = False
                continue
            x, y = axis.x(one.at), y_of(one.value)
            parts.append(f"H{x:.2f}V{y:.1f}" if is_drawn else f"M{x:.2f} {y:.1f}")
            is_drawn = True
        return "".join(parts) + (f"H{end:.2f}" if is_drawn else "")

    alone = f"M{_OPEN_ENDS} {y_of(life.alone):.1f}H100" if life.alone is not None and life.corrected else ""
    parts = [_SHADE.format(_OPEN_ENDS, 100 - _OPEN_ENDS, HEIGHT - FOOT)]
    for value in (low + margin, (low + high) / 2, high - margin):
        parts.append(GRID.format(LEFT, y_of(value), y_of(value)))
        parts.append(text_at(LEFT - 1, y_of(value) + 4, shown(round(value, 1)), "end"))
    fixed, since = stepped(life.corrected, 100), axis.x(life.corrected[0].at) if life.corrected else 100.0
    if life.alone is not None and life.corrected and life.corrected[0].value is not None:
        fixed += f"M{since:.2f} {y_of(life.alone):.1f}V{y_of(life.corrected[0].value):.1f}"
    parts.append(_STEPS.format(height=HEIGHT, alone=alone, line=stepped(life.streamed, since), fixed=fixed))
    if marks.closed_at:
        parts.append(RULE.format(x=_OPEN_ENDS, y=HEIGHT - FOOT))
    for one in values:
        if one.value is not None:
            kind, radius = ("fix", 6) if one in life.corrected else ("dot", 3)
            label = f"Step {one.step}, {shown(one.at)}: {shown(one.value)}"
            parts.append(_DOT.format(one.step, label, kind, axis.x(one.at), y_of(one.value), radius))
    rows = [[str(one.step), one.at, one.value, "stream" if one in life.streamed else "after it"] for one in values]
    key = key_of([Series("the stream", "s", []), Series("corrected; a mark leads to its records", "f", [])])
    parts += [*_heads(marks), *_feet(life)]
    return figure(f"{life.column} over processing time", parts, key, ["step", "when", life.column, "by"], rows)


def _heads(marks: Marks) -> list[Markup]:
    if not marks.closed_at:
        return [
            text_at(_OPEN_ENDS - 1, 12, "the stream", "end"),
            text_at(_OPEN_ENDS + 1, 12, "after it, by the logarithm of time", "w"),
        ]
    return [
        text_at(_OPEN_ENDS - 1, 12, "open: the stream revises", "end w"),
        text_at(_OPEN_ENDS + 1, 12, f"closed {shown(marks.closed_at)[5:]}", "b"),
    ]


def _feet(life: Life) -> list[Markup]:
    feet = []
    if life.streamed:
        feet.append(text_at(LEFT, HEIGHT - 10, shown(life.streamed[0].at)[5:], "start"))
    if life.corrected:
        feet.append(text_at(_ENDS, HEIGHT - 10, shown(life.corrected[-1].at)[5:], "end"))
    return feet


def watermark_chart(life: Life, marks: Marks) -> Markup:
    """Draws the watermark below the values, up to the commit that closed the row; nothing if no commit had one."""
    if marks.closes_at is None or not marks.points:
        return Markup()
    axis, ends = _axis(life, marks), marks.closes_at
    top = max([ends, *(watermark for _, watermark in marks.points)])
    span_s = (top - min(watermark for _, watermark in marks.points)).total_seconds() or 1.0

    def y_of(watermark: datetime) -> float:
        return 18 + (top - watermark).total_seconds() / span_s * (_LOW - 36)

    places = [(axis.x(at), y_of(watermark)) for at, watermark in marks.points]
    path = "".join(f"{'L' if n else 'M'}{x:.2f} {y:.1f}" for n, (x, y) in enumerate(places))
    dots = [Markup('<circle class="mark" cx="{:.2f}%" cy="{:.1f}" r="3"/>').format(x, y) for x, y in places]
    parts = [
        GRID.format(LEFT, y_of(ends), y_of(ends)),
        text_at(100, y_of(ends) - 5, f"the row ends {shown(ends)[5:]}", "end"),
        LINE.format(height=_LOW, path=path, colour="wm"),
        *([RULE.format(x=_OPEN_ENDS, y=_LOW - 14)] if marks.closed_at else []),
        *dots,
    ]
    title = "The watermark over the same time: the row is closed once it has reached the row's end"
    return figure(title, parts, Markup(), ["when", "watermark"], [list(point) for point in marks.points], height=_LOW)
