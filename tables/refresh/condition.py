"""A coarse condition on rows, by values, times and closing, by which each engine skips files and rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from twofold.infra.delta.file_pruning import ValueBounds
from twofold.infra.instants import Interval
from twofold_algebra.expression_sql import path_of, sql_of
from twofold_algebra.relations import Column, Expr
from twofold_algebra.sql.names import DUCKDB, SPARK, Dialect

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition on the rows of one relation, which its renderings for all engines share.

    A rendering leaves out the values of what its engine cannot compute as Spark does.

    Attributes:
        values: a value of a row -> what it may be, None for null; no floats, since engines differ in what NaN and -0.0
            equal.
        time: the column of the ranges, a date or a timestamp.
        ranges: epoch milliseconds, both ends included; none: any time.
        has_undated: whether rows without their time are within every range.
        closing: whether rows are closed or open; None: either.
        closes: the column with the time of their closing.
        closed_before_ms: rows that close before it are closed; one without the time is open.
    """

    values: Mapping[Expr, Collection[Any]] = field(default_factory=dict)
    time: str | None = None
    ranges: Sequence[Interval] = ()
    has_undated: bool = True
    closing: Literal["closed", "open"] | None = None
    closes: str = ""
    closed_before_ms: int = 0

    def sql(self, by: Dialect, schema: pa.Schema, of: str = "") -> str:
        """Writes the condition as an engine's SQL.

        Args:
            schema: the types of the times.
            of: the name of the relation; empty: there is only one.
        """
        return " AND ".join([*self._among(by, of), *self._in_ranges(by, schema, of), *self._by_closing(by, schema, of)])

    def bounds(self) -> ValueBounds:
        """Returns the bounds by which files are selected."""
        values = {one.name: frozenset(values) for one, values in self.values.items() if isinstance(one, Column)}
        return ValueBounds(time=self.time, ranges=self.ranges, values=values)

    def _among(self, by: Dialect, of: str) -> Iterator[str]:
        yield "true"
        for one, values in self.values.items():
            written = written_by(by, one, of)
            if written is not None:
                known = by.literals(sorted(value for value in values if value is not None))
                same = f"{written} IN ({known})" if known else "false"
                yield f"({same} OR {written} IS NULL)" if None in values else same

    def _in_ranges(self, by: Dialect, schema: pa.Schema, of: str) -> Iterator[str]:
        if self.time and self.ranges:
            at, kind = by.name(*filter(None, (of, self.time))), schema.field(self.time).type
            parts = [f"{at} BETWEEN {by.moment(kind, r.start)} AND {by.moment(kind, r.end)}" for r in self.ranges]
            yield f"({' OR '.join([*parts, *([f'{at} IS NULL'] if self.has_undated else [])])})"

    def _by_closing(self, by: Dialect, schema: pa.Schema, of: str) -> Iterator[str]:
        if self.closing:
            at = by.name(*filter(None, (of, self.closes)))
            end = by.moment(schema.field(self.closes).type, self.closed_before_ms)
            yield f"{at} < {end}" if self.closing == "closed" else f"({at} >= {end} OR {at} IS NULL)"


def written_by(by: Dialect, value: Expr, of: str = "") -> str | None:
    """Writes a value of a row as an engine's SQL; None if the engine may compute it differently than Spark.

    Args:
        of: the name of the relation; empty: there is only one.
    """
    path = path_of(value)
    if by is SPARK:
        return sql_of(value) if path is None else by.name(*path)
    if path is None or (by is not DUCKDB and len(path) > 1):
        return None
    return by.name(*filter(None, (of, *path)))
