"""Scopes as predicates: coarse ones that prune files and an exact one, for Spark and DuckDB."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from infra.delta.datafusion_sql import instant
from infra.delta.file_pruning import ValueBounds
from infra.instants import DAY_MS, Interval
from infra.spark.spark_literals import date_of, instant_of, literal_of
from infra.sql.names import DATAFUSION, DUCKDB, SPARK
from tables.declare.table import Table, restricting
from tables.declare.topic import Topic
from tables.refresh.row_diff import matching
from tables.refresh.scope import Scope, coalesce, merged
from tables.refresh.scope_expressions import duckdb_sql, is_total

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MANY_VALUES = 1_000
_MANY_RANGES = 40


@dataclass(frozen=True)
class ScopeFilter:
    """The rows of a table, and of its inputs, that a list of scopes means.

    Attributes:
        closed_before_ms: only rows whose `closes_at` is before it; None: open rows too.
    """

    table: Table
    scopes: Sequence[Scope]
    closed_before_ms: int | None = None

    def inputs(self, frame: DataFrame, source: Topic | Table, *, many: bool) -> DataFrame:
        """Rows of an input that can matter: a superset of those within `depends_within` of a scope's rows.

        Of a topic with a clock also those that may repeat one of them: copies of a record differ in the corrected time,
        each by the clock's bound at most, and the first in the log stands for all.

        Args:
            many: the superset may be so large that it pays to look at each row, where the input allows it.
        """
        time, slack_ms = source.event_time, self._input_slack_ms(source)
        by = self._held(frame, self._of_each(restricting(self.table, source, frame.columns)))
        rows = self._coarse(frame, by, time, slack_ms)
        return self._within(rows, by, time, slack_ms) if many and by else rows

    def input_bounds(self, source: Topic | Table, columns: Sequence[str]) -> ValueBounds:
        """The bounds by which files of an input with these columns are chosen."""
        by = {n: text for n, text in restricting(self.table, source, columns).items() if text in columns}
        return self._bounds(by, source.event_time, self._input_slack_ms(source))

    def bounds(self, columns: Sequence[str]) -> ValueBounds:
        """A superset of the table's rows in the scopes, to choose its files by."""
        by = {n: column for n, column in self._own.items() if column in columns}
        return self._bounds(by, self.table.event_time, 0)

    def input_join(self, source: Topic | Table, schema: pa.Schema, *, is_undated: bool = False) -> str:
        """DuckDB's clauses that keep of an input, as `rows`, those within `depends_within` of a scope in `scopes`.

        A column that the input lacks, or of which a scope is of any value, does not count; without one that does they
        keep all rows of the scopes' times.

        Args:
            schema: the input's.
            is_undated: rows of it may lack their time: these are near every scope.
        """
        time, slack_ms = source.event_time, self._input_slack_ms(source)
        texts = self._of_each(restricting(self.table, source, schema.names))
        by = {n: sql for n, text in texts.items() if (sql := duckdb_sql(text, schema.names))}
        if not by:
            return f"WHERE ({self._in_ranges(schema, time, slack_ms, is_undated=is_undated)})"
        return " ".join(self._join("SEMI JOIN", schema, by, time, slack_ms, is_undated=is_undated))

    def near(self, frame: DataFrame) -> DataFrame:
        """A superset of the table's rows that lie in the scopes."""
        return self._coarse(frame, self._own, self.table.event_time, 0)

    def exact(self, frame: DataFrame) -> DataFrame:
        """Exactly the rows of the table, live or recomputed, that lie in the scopes."""
        rows = self.closed(self.near(frame))
        return rows if self._is_everything else self._within(rows, self._by, self.table.event_time, 0)

    def closed(self, frame: DataFrame) -> DataFrame:
        """The table's rows that are closed."""
        return frame.where(self.is_closed)

    @property
    def is_closed(self) -> Column:
        """Whether a row of the table is closed: one without a closing time is not."""
        from pyspark.sql import functions as F

        if not self._closes:
            return F.lit(True)
        return F.coalesce(F.col(self._closes) < instant_of(self.closed_before_ms or 0), F.lit(False))

    def without_open(self, rows: DataFrame, live: DataFrame) -> DataFrame:
        """The rows of whose keys no live row is open: such a row is still the stream's, and so is its key."""

        return matching(rows, live.where(~self.is_closed), self.table.primary_key, "ANTI")

    def near_sql(self, schema: pa.Schema) -> str | None:
        """The superset of `near` as a DataFusion predicate; None where it is all rows."""
        parts = []
        for column, values in self._values({n: c for n, c in self._own.items() if c in schema.names}):
            if all(isinstance(v, str | int) for v in values if v is not None):
                name, literals = DATAFUSION.name(column), DATAFUSION.literals(v for v in values if v is not None)
                same = f"{name} IN ({literals})" if literals else "false"
                parts.append(f"({same} OR {name} IS NULL)" if None in values else same)
        time = self.table.event_time
        ranges = self._ranges(0)
        if time and ranges:
            at, bound = DATAFUSION.name(time), partial(instant, schema.field(time).type)
            near = (f"({at} >= {bound(r.start)} AND {at} <= {bound(r.end)})" for r in ranges)
            parts.append(f"({' OR '.join(near)})")
        return " AND ".join(parts) or None

    def open_sql(self, schema: pa.Schema) -> str:
        """The table's rows that are not closed, as a DataFusion predicate."""
        watermark = instant(schema.field(self.table.closes_at).type, self.closed_before_ms or 0)
        at = DATAFUSION.name(self.table.closes_at or "")
        return f"({at} >= {watermark} OR {at} IS NULL)"

    def exact_join(self, schema: pa.Schema, open_rows: str | None = None) -> str:
        """DuckDB's clauses that keep of the table's rows, live or recomputed, as `rows`, just those in `scopes`.

        Args:
            open_rows: a relation with the live rows that are open; rows of their keys are left out.
        """
        join, where = "", "WHERE true"
        if not self._is_everything:
            join, where = self._join("SEMI JOIN", schema, self._quoted, self.table.event_time, 0)
        if self._closes:
            at, instant = _comparable(schema, self._closes)
            where += f" AND {at} < {instant}({(self.closed_before_ms or 0) * 1_000})"
        if open_rows:
            key = map(DUCKDB.name, self.table.primary_key)
            same = " AND ".join(f"rows.{c} IS NOT DISTINCT FROM {open_rows}.{c}" for c in key)
            where += f" AND NOT EXISTS (SELECT 1 FROM {open_rows} WHERE {same})"
        return f"{join} {where}"

    def next_closings(self, schema: pa.Schema) -> str:
        """DuckDB's query for the number of each scope that has open rows in `rows`, and when the first of these closes.

        A time is in epoch milliseconds, rounded down.
        """
        join, where = self._join("JOIN", schema, self._quoted, self.table.event_time, 0)
        at, instant = _comparable(schema, self.table.closes_at or "")
        is_open = f"{at} >= {instant}({(self.closed_before_ms or 0) * 1_000})"
        return f"SELECT _n, epoch_ms(min({at})) FROM rows {join} {where} AND {is_open} GROUP BY _n"

    def as_table(self, types: Mapping[str, pa.DataType], names: Sequence[str | None] | None = None) -> pa.Table:
        """The scopes as rows: per column of `recompute_by` its value and whether any will do; then the interval.

        `_n` numbers them from 0.

        Args:
            types: of the columns of the relation that the scopes are joined with.
            names: what that relation calls the columns of `recompute_by`; None: the same, or not at all.
        """
        columns: dict[str, pa.Array] = {"_n": pa.array(range(len(self.scopes)), pa.int64())}
        for n, column in enumerate(names or self.table.recompute_by):
            values = [s.values[n] for s in self.scopes]
            columns[f"_v{n}"] = pa.array([None if v is ... else v for v in values], types.get(column or ""))
            columns[f"_any{n}"] = pa.array([v is ... for v in values], pa.bool_())
        columns["_start"] = pa.array([s.interval.start if s.interval else None for s in self.scopes], pa.int64())
        columns["_end"] = pa.array([s.interval.end if s.interval else None for s in self.scopes], pa.int64())
        return pa.table(columns)

    def is_near(self, source: Topic | Table) -> bool:
        """Whether what is read of an input lies within `depends_within` of a scope."""
        return self._input_slack_ms(source) == (self.table.depends_within_ms or 0)

    def _input_slack_ms(self, source: Topic | Table) -> int:
        clock = source.clock if isinstance(source, Topic) else None
        return (self.table.depends_within_ms or 0) + (2 * clock.bound_ms if clock else 0)

    @property
    def leaves_open_rows(self) -> bool:
        """Whether rows that have not closed are the stream's."""
        return self._closes is not None

    @property
    def _closes(self) -> str | None:
        return self.table.closes_at if self.closed_before_ms is not None else None

    @cached_property
    def _is_everything(self) -> bool:
        return any(s.interval is None and all(v is ... for v in s.values) for s in self.scopes)

    @cached_property
    def _all_values(self) -> list[set[Any]]:
        """By column of `recompute_by`."""
        return [{s.values[n] for s in self.scopes} for n in range(len(self.table.recompute_by))]

    @cached_property
    def _intervals(self) -> list[Interval] | None:
        """The dates of all scopes; None when a scope is of every date."""
        intervals = [s.interval for s in self.scopes if s.interval]
        return coalesce(intervals) if len(intervals) == len(self.scopes) else None

    @property
    def _by(self) -> dict[int, str]:
        """The columns of `recompute_by` of which some scope has a value, by their number."""
        return {n: column for n, column in enumerate(self.table.recompute_by) if self._all_values[n] != {...}}

    @property
    def _own(self) -> dict[int, str]:
        """The columns of `recompute_by`, by their number."""
        return dict(enumerate(self.table.recompute_by))

    @property
    def _quoted(self) -> dict[int, str]:
        """The columns of which some scope has a value, as DuckDB writes them."""
        return {n: DUCKDB.name(column) for n, column in self._by.items()}

    def _of_each(self, by: Mapping[int, str]) -> dict[int, str]:
        """Those of which each scope has a value, by the number of the column of `recompute_by`."""
        return {n: text for n, text in by.items() if not self._has_any(n)}

    def _held(self, frame: DataFrame, by: Mapping[int, str]) -> dict[int, str]:
        """Those that are columns, and expressions that are total and of a type that holds the scopes' values."""
        columns = set(frame.columns)
        computed = {n: text for n, text in by.items() if text not in columns}
        if not computed:
            return dict(by)
        kinds = {f.name: f.type for f in _arrow_schema(frame)}
        computed = {n: text for n, text in computed.items() if is_total(text, kinds)}
        computed_schema = _arrow_schema(
            frame.select(*(_value(text, ()).alias(f"_k{n}") for n, text in computed.items()))
        )
        values = {n: [v for v in self._all_values[n] if v is not None] for n in computed}
        held = {n for n in computed if _holds(computed_schema.field(f"_k{n}").type, values[n])}
        return {n: text for n, text in by.items() if text in columns or n in held}

    def _has_any(self, n: int) -> bool:
        return ... in self._all_values[n]

    def _values(self, by: Mapping[int, str]) -> Iterator[tuple[str, set[Any]]]:
        """Columns and expressions whose values are known and few, but for floats.

        Engines differ in what NaN and -0.0 equal.

        Args:
            by: number of a column of `recompute_by` -> what the relation has for it.
        """
        for n, text in by.items():
            values = self._all_values[n]
            is_ordered = not any(isinstance(value, float) for value in values)
            if ... not in values and is_ordered and len(values) <= _MANY_VALUES:
                yield text, values

    def _ranges(self, slack_ms: int) -> list[Interval]:
        """The dates of all scopes, widened; empty when a scope is of every date."""
        ranges = coalesce(interval.widened(slack_ms) for interval in self._intervals or ())
        return [Interval(ranges[0].start, ranges[-1].end)] if len(ranges) > _MANY_RANGES else ranges

    def _join(
        self,
        kind: str,
        schema: pa.Schema,
        by: Mapping[int, str],
        time: str | None,
        slack_ms: int,
        *,
        is_undated: bool = False,
    ) -> tuple[str, str]:
        """DuckDB's join of `rows` with `scopes`, these widened by the slack, and a condition that prunes."""
        match, scopes, where = ["true"], "scopes", "true"
        for n, column in by.items():
            # By `=` DuckDB lets Arrow filter what it reads, for which NaN equals nothing, and -0.0 is not 0.0.
            is_exact = not any(isinstance(s.values[n], float | None) for s in self.scopes)
            same = f"rows.{column} {'=' if is_exact else 'IS NOT DISTINCT FROM'} scopes._v{n}"
            match.append(f"(scopes._any{n} OR {same})" if self._has_any(n) else same)
        if time and any(s.interval for s in self.scopes):
            at, instant = _comparable(schema, time)
            scopes = (
                f"(SELECT *, {instant}((_start - {slack_ms}) * 1000) AS _from, "
                f"{instant}((_end + {slack_ms}) * 1000) AS _until FROM scopes) AS scopes"
            )
            inside = f"{at} >= scopes._from AND {at} < scopes._until"
            otherwise = [] if all(s.interval for s in self.scopes) else ["scopes._start IS NULL"]
            otherwise += [f"{at} IS NULL"] if is_undated else []
            match.append(f"({' OR '.join([*otherwise, inside])})" if otherwise else inside)
            where = self._in_ranges(schema, time, slack_ms, is_undated=is_undated)
        return f"{kind} {scopes} ON {' AND '.join(match)}", f"WHERE ({where})"

    def _in_ranges(self, schema: pa.Schema, time: str | None, slack_ms: int, *, is_undated: bool = False) -> str:
        """DuckDB's condition that a row lies within the times of all scopes, widened by the slack."""
        if time is None:
            return "true"
        at, instant = _comparable(schema, time)
        edges = [(f"{instant}({r.start * 1_000})", f"{instant}({r.end * 1_000})") for r in self._ranges(slack_ms)]
        parts = [f"{at} BETWEEN {first} AND {last}" for first, last in edges]
        return " OR ".join([*parts, *([f"{at} IS NULL"] if is_undated and parts else [])]) or "true"

    def _bounds(self, by: Mapping[int, str], time: str | None, slack_ms: int) -> ValueBounds:
        return ValueBounds(
            time=time,
            ranges=self._ranges(slack_ms),
            values={column: frozenset(values) for column, values in self._values(by)},
        )

    def _within(self, rows: DataFrame, by: Mapping[int, str], time: str | None, slack_ms: int) -> DataFrame:
        """The rows that have a scope's values of these columns or expressions and lie in its interval, widened."""
        from pyspark.sql import functions as F

        selected = rows.select(*(_value(text, rows.columns).alias(f"_k{n}") for n, text in by.items()))
        types = {f.name: f.type for f in _arrow_schema(selected)}
        names = [f"_k{n}" if n in by else None for n in range(len(self.table.recompute_by))]
        columns = [*(f"_{kind}{n}" for n in by for kind in ("v", "any")), "_start", "_end"]
        scope_rows = F.broadcast(rows.sparkSession.createDataFrame(self.as_table(types, names).select(columns)))
        match: Column = F.lit(True)
        for n, text in by.items():
            same = _value(text, rows.columns).eqNullSafe(F.col(f"_v{n}"))
            match &= (F.col(f"_any{n}") | same) if self._has_any(n) else same
        if time:
            at = F.unix_millis(rows[time].cast("timestamp"))
            inside = (at >= F.col("_start") - slack_ms) & (at < F.col("_end") + slack_ms)
            match &= F.col("_start").isNull() | at.isNull() | inside
        return rows.join(scope_rows, match, "left_semi")

    def _coarse(self, frame: DataFrame, by: Mapping[int, str], time: str | None, slack_ms: int) -> DataFrame:
        from pyspark.sql import functions as F

        for text, values in self._values(by):
            value = _value(text, frame.columns)
            condition = value.isin([literal_of(v) for v in values if v is not None])
            frame = frame.where(condition | value.isNull() if None in values else condition)
        ranges = self._ranges(slack_ms)
        if time and ranges:
            is_date = dict(frame.dtypes)[time] == "date"
            condition = F.col(time).isNull()
            for r in ranges:
                bounds = (date_of(ms // DAY_MS) if is_date else instant_of(ms) for ms in (r.start, r.end))
                condition |= F.col(time).between(*bounds)
            frame = frame.where(condition)
        return frame


def _value(text: str, columns: Collection[str]) -> Column:
    """A column of that name, or the expression."""
    from pyspark.sql import functions as F

    return F.col(SPARK.name(text)) if text in columns else F.expr(text)


def with_held_values(scopes: Sequence[Scope], kinds: Sequence[Collection[pa.DataType]]) -> list[Scope]:
    """The scopes, of any value in a column of which some relation cannot hold each value just as it is.

    A join of unlike columns compares them as a type of its own: no value of the one stands for those of the other that
    it equals, and a number that is cut to fit is another one.

    Args:
        kinds: by column of `recompute_by` its types in the relations that have it.
    """
    values = ([s.values[n] for s in scopes if s.values[n] is not ...] for n in range(len(kinds)))
    is_held = [all(_holds(kind, held) for kind in of) for held, of in zip(values, kinds, strict=True)]
    if all(is_held):
        return list(scopes)
    any_of = (tuple(v if held else ... for v, held in zip(s.values, is_held, strict=True)) for s in scopes)
    return merged(Scope(values, s.interval) for values, s in zip(any_of, scopes, strict=True))


def _holds(kind: pa.DataType, values: Sequence[Any]) -> bool:
    """Whether a column of this type can have each of the values, and no other that is equal to one of them."""
    try:
        held = pa.array(values)
        if pa.types.is_null(held.type) or held.type == kind:
            return True
        alike = _family(kind) & _family(held.type)
        return bool(alike) and held.cast(kind).cast(held.type).equals(held)
    except (pa.ArrowException, TypeError, OverflowError):
        return False


def _family(kind: pa.DataType) -> set[str]:
    """Types that have one of these in common compare by value."""
    if pa.types.is_integer(kind):
        return {"floating", "decimal"}
    families = {
        "floating": pa.types.is_floating(kind),
        "decimal": pa.types.is_decimal(kind),
        "time": pa.types.is_date(kind) or pa.types.is_timestamp(kind),
        "text": pa.types.is_string(kind) or pa.types.is_large_string(kind),
        "bytes": pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    }
    return {name for name, is_one in families.items() if is_one}


def _comparable(schema: pa.Schema, column: str) -> tuple[str, str]:
    """A time of `rows` in DuckDB's SQL, and the function that makes such a time of microseconds.

    A timestamp stays as it is: to convert each value of the column would cost more than all the rest.
    """
    is_utc = getattr(schema.field(column).type, "tz", None)
    name = DUCKDB.name("rows", column)
    return (name, "make_timestamptz") if is_utc else (f"{name}::TIMESTAMP", "make_timestamp")


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")
