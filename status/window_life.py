"""The life of a row: the values of a column over processing time, by the stream and after it, from its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from twofold.batch.ledgers.row_history import RowHistory, RowVersion
from twofold.infra.text.printable import restored

STREAM = "stream"


@dataclass(frozen=True)
class Value:
    """A value of the column from a moment on.

    Attributes:
        step: of the history, from 1.
        value: None: the row did not exist, or had no value.
    """

    at: datetime
    step: int
    value: float | None


@dataclass(frozen=True)
class Life:
    """The values of one column of a row, oldest first.

    Attributes:
        streamed: by the stream; the last of them is what it would say for ever.
        corrected: by batch work after that.
    """

    column: str
    streamed: Sequence[Value]
    corrected: Sequence[Value]

    @property
    def alone(self) -> float | None:
        """The value that the stream alone would say; None for none."""
        return self.streamed[-1].value if self.streamed else None

    @property
    def final(self) -> float | None:
        """The value that the row has now."""
        return [*self.streamed, *self.corrected][-1].value


@dataclass(frozen=True)
class Marks:
    """The watermark of the stream while a row was open.

    Attributes:
        points: moments with the watermark that a commit then had, of the commits that wrote the row and the one that
            closed it, oldest first.
        closes_at: the watermark that closes the row; None if its table closes none.
        closed_at: when the first commit had it; None if that is not known, or not yet.
    """

    points: Sequence[tuple[datetime, datetime]]
    closes_at: datetime | None
    closed_at: datetime | None


def marks_of(history: RowHistory) -> Marks:
    """Returns how the watermark went on to the end of the row."""
    streamed = [(v.at, v.watermark) for v in history.versions if v.by == STREAM and v.watermark]
    closed = history.closed
    points = sorted({*streamed, *([(closed.at, closed.watermark)] if closed else [])})
    return Marks(points, history.closes_at, closed.at if closed else None)


def history_from(document: Mapping[str, Any]) -> RowHistory:
    """Reads what `twofold why --json` prints."""
    history: RowHistory = restored(RowHistory, document)
    return history


def lives_of(history: RowHistory) -> list[Life]:
    """Returns the life of each column of numbers, those that batch work changed after the stream first."""
    rows = _rows(history.versions)
    names = dict.fromkeys(name for _, _, row in rows for name in row or () if name not in history.key)
    last = max((n for n, (version, _, _) in enumerate(rows) if version.by == STREAM), default=-1)
    lives = []
    for name in names:
        values = [Value(version.at, step, _number((row or {}).get(name))) for version, step, row in rows]
        life = Life(name, _changes(values[: last + 1]), _changes(values[last + 1 :]))
        if any(value.value is not None for value in values):
            lives.append(life)
    return sorted(lives, key=lambda life: life.alone == life.final)


def _rows(versions: Sequence[RowVersion]) -> list[tuple[RowVersion, int, dict[str, Any] | None]]:
    """Returns each change with the whole row that it left; None if it removed the row."""
    row: dict[str, Any] | None = None
    rows = []
    for step, version in enumerate(versions, 1):
        if version.change == "none":
            continue
        row = None if version.change == "delete" else {**(row or {}), **(version.after or {})}
        rows.append((version, step, row))
    return rows


def _changes(values: Sequence[Value]) -> list[Value]:
    """Leaves out the values that are equal to the one before."""
    return [value for n, value in enumerate(values) if n == 0 or value.value != values[n - 1].value]


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
