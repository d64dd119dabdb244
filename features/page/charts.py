"""Charts as SVG drawn on the server: texts keep their size at any width, the numbers follow as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from twofold.infra.text.printable import shown

HEIGHT, FOOT, HEAD = 170, 30, 18
LEFT = 9.0  # percent, for the numbers of the scale
GRID = Markup('<line class="grid" x1="{}%" x2="100%" y1="{:.1f}" y2="{:.1f}"/>')
_SVG = Markup('<svg class="chart" width="100%" height="{}" role="{}" aria-label="{}">{}</svg>')
_CURVE = Markup(
    '<svg viewBox="0 0 100 {height}" width="100%" height="{height}" preserveAspectRatio="none">'
    '<path class="area" d="{path}V{base}H{left}Z"/><path class="line" d="{path}"/></svg>'
)
_DOT = Markup('<circle class="dot" cx="{:.2f}%" cy="{:.1f}" r="3"/>')
LINE = Markup(
    '<svg viewBox="0 0 100 {height}" width="100%" height="{height}" preserveAspectRatio="none">'
    '<path class="{colour}" d="{path}"/></svg>'
)
_BAR = Markup('<rect class="{}" x="{:.2f}%" width="{:.2f}%" y="{:.1f}" height="{:.1f}"/>')
RULE = Markup('<line class="rule" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="{y}"/>')
_NUMBERS = Markup(
    '<details><summary>Numbers</summary><div class="wide"><table class="n"><thead><tr>{}</tr></thead>'
    "<tbody>{}</tbody></table></div></details>"
)


@dataclass(frozen=True)
class Series:
    """Values that are drawn in one colour; None is a gap."""

    name: str
    colour: str
    values: Sequence[float | None]


def stacked_bars(title: str, head: str, labels: Sequence[str], series: Sequence[Series]) -> Markup:
    """Draws a bar for each label, of the values of all series one on the other; without a value it says so.

    Args:
        head: what the labels are, for the table of numbers.
    """
    sums = [sum(one.values[n] or 0 for one in series) for n in range(len(labels))]
    top = _top(max(sums, default=0))
    parts = _scale(top)
    step = (100 - LEFT) / max(len(labels), 1)
    width = min(step * 0.7, 11)
    every = math.ceil(len(labels) / 6)
    for n, label in enumerate(labels):
        x, y = LEFT + step * (n + 0.5), float(HEIGHT - FOOT)
        for one in series:
            if value := one.values[n]:
                height = value / top * (HEIGHT - FOOT - HEAD)
                y -= height
                parts.append(_BAR.format(one.colour, x - width / 2, width, y, max(height, 1)))
        if sums[n] and len(labels) <= 8:
            parts.append(text_at(x, y - 5, shown(sums[n]), "mid"))
        if n % every == 0:
            parts.append(text_at(x, HEIGHT - 10, label, "mid" if n % (2 * every) == 0 else "mid w"))
    rows = [[label, *(one.values[n] for one in series)] for n, label in enumerate(labels)]
    used = [one for one in series if any(one.values)]
    return figure(
        title, parts, key_of(used) if len(used) > 1 else Markup(), [head, *(one.name for one in series)], rows
    )


def lines(title: str, head: str, labels: Sequence[str], series: Sequence[Series]) -> Markup:
    """Draws the values of each series as steps over time; what is not known is a gap.

    Args:
        head: what the labels are, for the table of numbers.
    """
    known = [value for line in series for value in line.values if value is not None]
    top = _top(max(known, default=0), least=0.0)
    parts = _scale(top)
    step = (100 - LEFT) / max(len(labels), 1)
    for line in series:
        path, drawn = [], False
        for n, value in enumerate(line.values):
            if value is None:
                drawn = False
                continue
            x, y = LEFT + step * n, HEIGHT - FOOT - value / top * (HEIGHT - FOOT - HEAD)
            path.append(f"{f'V{y:.1f}' if drawn else f'M{x:.2f} {y:.1f}'}H{x + step:.2f}")
            drawn = True
        parts.append(LINE.format(height=HEIGHT, path="".join(path), colour=line.colour))
    every = math.ceil(len(labels) / 6)
    for n in range(0, len(labels), every):
        parts.append(text_at(LEFT + step * n, HEIGHT - 10, labels[n], "start" if n % (2 * every) == 0 else "start w"))
    rows = [[label, *(line.values[n] for line in series)] for n, label in enumerate(labels)]
    rows = [row for row in rows if any(value is not None for value in row[1:])]
    key = key_of([Series(line.name, f"{line.colour}k", []) for line in series]) if len(series) > 1 else Markup()
    return figure(title, parts, key, [head, *(line.name for line in series)], rows)


def classes(title: str, head: str, counts: Sequence[tuple[str, int]], rules: Sequence[tuple[float, str]]) -> Markup:
    """Draws how many values fell into each class, by the logarithm, since most fall into one.

    Args:
        head: what the classes are, for the table of numbers.
        rules: places among the classes, 1.5 is the middle of the second one, with what is there.
    """
    most = max((n for _, n in counts), default=0)
    top = math.log10(10 ** math.ceil(math.log10(most + 1)) + 1) if most else 1.0
    room, parts = HEIGHT - FOOT - HEAD, []
    powers = range(math.ceil(math.log10(most + 1)) + 1 if most else 0)
    for power in powers[:: 1 + len(powers) // 5]:
        y = HEIGHT - FOOT - math.log10(10**power + 1) / top * room
        thousands, rest = divmod(power, 3)
        parts.append(GRID.format(LEFT, y, y))
        parts.append(text_at(LEFT - 1, y + 4, f"{10**rest}{('', ' k', ' M', ' G', ' T')[thousands]}", "end"))
    step = (100 - LEFT) / len(counts)
    for n, (label, records) in enumerate(counts):
        height = math.log10(records + 1) / top * room
        if records:
            place = (LEFT + step * (n + 0.1), step * 0.8, HEIGHT - FOOT - height, height)
            parts.append(_BAR.format("s", *place))
        parts.append(text_at(LEFT + step * (n + 0.5), HEIGHT - 10, label, "mid" if n % 3 == 0 else "mid w"))
    for n, (at, name) in enumerate(rules):
        x, y = LEFT + step * at, 12 + 15 * (n % 3)
        parts.append(RULE.format(x=x, y=HEIGHT - FOOT))
        parts.append(text_at(x + 0.6 if x < 70 else x - 0.6, y, name, "b" if x < 70 else "b end"))
    return figure(title, parts, Markup(), [head, "records"], [list(counted) for counted in counts if counted[1]])


def curve(title: str, head: str, labels: Sequence[str], values: Series, *, saved: str, say: str) -> Markup:
    """Draws values that fall by steps, evenly spaced, under which a script puts a slider.

    Args:
        head: what the labels are, for the table of numbers; `saved`: what the values have lost since the first.
        say: the id of the element whose text the slider changes.
    """
    numbers = [value or 0 for value in values.values]
    top = _top(max(numbers, default=0))
    parts = _scale(top)
    step = (100 - LEFT - 4) / max(len(labels) - 1, 1)
    xs = [LEFT + step * n for n in range(len(labels))]
    ys = [HEIGHT - FOOT - number / top * (HEIGHT - FOOT - HEAD) for number in numbers]
    path = f"M{xs[0]:.2f} {ys[0]:.1f}" + "".join(f"H{x:.2f}V{y:.1f}" for x, y in zip(xs, ys, strict=True)) + "H100"
    parts.append(_CURVE.format(height=HEIGHT, path=path, base=HEIGHT - FOOT, left=f"{xs[0]:.2f}"))
    parts += [text_at(x, HEIGHT - 10, labels[n], "mid" if n % 2 == 0 else "mid w") for n, x in enumerate(xs)]
    parts += [_DOT.format(x, y) for x, y in zip(xs, ys, strict=True)]
    rows = [[label, number, numbers[0] - number] for label, number in zip(labels, numbers, strict=True)]
    return figure(title, parts, Markup(), [head, values.name, saved], rows, say)


def figure(
    title: str,
    parts: Sequence[Markup],
    key: Markup,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    say: str = "",
    height: int = HEIGHT,
) -> Markup:
    """Puts a drawing between its title and its numbers.

    Args:
        key: what the colours are.
        heads, rows: of the table of numbers; the first value of a row names it.
        say: the id of the element whose text a slider changes; empty: it has none.
    """
    drawn = Markup().join(parts)
    role = "group" if "<a " in drawn else "img"  # who hears a page finds no link in an image
    svg = _SVG.format(height, role, f"{title}; the numbers are in the table below.", drawn)
    head = Markup().join(Markup('<th scope="col">{}</th>').format(name) for name in heads)
    cells = [
        (shown(row[0]), Markup().join(Markup("<td>{}</td>").format(shown(value)) for value in row[1:])) for row in rows
    ]
    lines = Markup().join(Markup('<tr><th scope="row">{}</th>{}</tr>').format(*line) for line in cells)
    numbers = _NUMBERS.format(head, lines)
    return Markup('<figure data-say="{}"><figcaption>{}</figcaption>{}{}{}</figure>').format(
        say, title, svg, key, numbers
    )


def key_of(series: Sequence[Series]) -> Markup:
    """Names the colours of these series."""
    entry = Markup('<span><svg aria-hidden="true"><rect class="{}" width="10" height="10"/></svg>{}</span>')
    return Markup('<div class="key">{}</div>').format(Markup().join(entry.format(s.colour, s.name) for s in series))


def _scale(top: float) -> list[Markup]:
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT - FOOT - share * (HEIGHT - FOOT - HEAD)
        lines.append(GRID.format(LEFT, y, y))
        value = top * share
        lines.append(text_at(LEFT - 1, y + 4, shown(int(value)) if value == int(value) else f"{value:.3g}", "end"))
    return lines


def text_at(x: float, y: float, text: str, kind: str) -> Markup:
    """Puts a text at a percentage of the width and a height, `kind` is its classes."""
    return Markup('<text class="{}" x="{:.2f}%" y="{:.1f}">{}</text>').format(kind, x, y, escape(text))


def _top(most: float, least: float = 2.0) -> float:
    """Returns the end of a scale: 1, 2 or 4 times a power of ten, or more than that by a half; at least `least`."""
    if most <= least or not most:
        return least or 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(factor * power for factor in (1, 2, 4, 6, 8, 10) if factor * power >= most)


class Box(NamedTuple):
    """A node of a graph.

    Attributes:
        place: its layer, and its height in it.
        word: for its health; `say`: the words below the name; `because`: what a screen reader says of it, too.
    """

    place: tuple[int, float]
    name: str
    word: str
    say: str
    because: str
    href: str


_MAP = Markup(
    '<div class="map" tabindex="0" role="region" aria-label="Map"><svg width="{}" height="{:.0f}">{}{}</svg></div>'
)
_STEP_X, _STEP_Y, _WIDE, _HIGH = 290, 62, 230, 46
_LONGEST = 28  # characters of a name that fit
_LINK = Markup(
    '<a class="{word}" href="{href}" aria-label="{label}"><rect {box} rx="7"/><circle {dot} r="5"/>'
    '<text {at}>{name}</text> <text class="say" {below}>{say}</text></a>'
)


def graph(boxes: Sequence[Box], edges: Sequence[Sequence[tuple[int, float]]]) -> Markup:
    """Draws nodes in layers from left to right, each a link, in this order, and the edges between them."""
    levels = [*(box.place[1] for box in boxes), *(level for edge in edges for _, level in edge)]
    width = max(_STEP_X * box.place[0] + _WIDE for box in boxes) + 8
    height = _STEP_Y * max(levels) + _HIGH + 8
    lines = [Markup('<path d="{}"/>').format(_path(points)) for points in edges]
    return _MAP.format(width, height, Markup().join(lines), Markup().join(map(_node, boxes)))


def _node(box: Box) -> Markup:
    x, y = 4 + _STEP_X * box.place[0], 4 + _STEP_Y * box.place[1]
    place = Markup('x="{}" y="{:.1f}"')
    return _LINK.format(
        word=box.word,
        href=box.href,
        label=", ".join(filter(None, (box.name, box.say, box.because))),
        box=Markup('x="{}" y="{:.1f}" width="{}" height="{}"').format(x, y, _WIDE, _HIGH),
        dot=Markup('cx="{}" cy="{:.1f}"').format(x + 14, y + 17),
        at=place.format(x + 26, y + 21),
        below=place.format(x + 26, y + 38),
        name=box.name if len(box.name) <= _LONGEST else f"{box.name[: _LONGEST - 1]}…",
        say=box.say,
    )


def _path(points: Sequence[tuple[int, float]]) -> str:
    """Draws an edge as curves from the right of a node, through the layers between, to the left of another."""
    places = [(4 + _STEP_X * layer, 4 + _STEP_Y * level + _HIGH / 2) for layer, level in points]
    x, y = places[0]
    parts = [f"M{x + _WIDE} {y:.1f}"]
    x += _WIDE
    for n, (left, level) in enumerate(places[1:], 1):
        middle = (x + left) / 2
        parts.append(f"C{middle:.0f} {y:.1f} {middle:.0f} {level:.1f} {left} {level:.1f}")
        x, y = left, level
        if n < len(places) - 1:
            parts.append(f"H{left + _WIDE}")
            x += _WIDE
    return "".join(parts)
