"""Writes scopes as predicates for Spark and DuckDB: a coarse condition that prunes files, and the exact rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from twofold.infra.duckdb_session import duckdb_utc, query
from twofold.infra.instants import Interval, from_epoch_ms
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.condition import Condition, written_by
from twofold.tables.refresh.row_diff import matching, same_key
from twofold.tables.refresh.scope import Scope, coalesce, merged, whole
from twofold.tables.refresh.scope_expressions import is_total
from twofold_algebra.expression_sql import column_of
from twofold_algebra.relations import Column, Expr
from twofold_algebra.sql.names import DATAFUSION, DUCKDB, SPARK, Dialect

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_MANY_VALUES = 1_000
_MANY_RANGES = 40


@dataclass(frozen=True)
class ScopeFilter:
    """The rows of a table, and of its inputs, that a list of scopes means.

    Attributes:
        schema: of the table.
        closed_before_ms: only rows whose `closes_at` is before it; None: open rows too.
    """

    table: Table
    scopes: Sequence[Scope]
    schema: pa.Schema
    closed_before_ms: int | None = None

    def inputs(self, frame: DataFrame, source: Topic | Table, schema: pa.Schema, *, each: bool) -> DataFrame:
        """Filters an input to rows that may matter: at least all within `depends_within` of a scope.

        A topic with a clock also gives those that may repeat one of them: copies of a record differ in the corrected
        time, each by the clock's bound at most, and the first in the log stands for all.

        Args:
            schema: the input's.
            each: whether to look at each row by its own scope, if the input allows it.
        """
        by = self._held(frame, schema, self._of_each(self.table.restricting(source, schema.names)))
        slack_ms, time = self._input_slack_ms(source), source.event_time
        rows = frame.where(self._condition(by, time, slack_ms).sql(SPARK, schema))
        return self._within(rows, by, time, slack_ms, schema) if each and by else rows

    def input_condition(self, source: Topic | Table, columns: Sequence[str]) -> Condition:
        """Returns a condition that holds for all rows that matter of an input with these columns."""
        by = self._of_each(self.table.restricting(source, columns))
        return self._condition(by, source.event_time, self._input_slack_ms(source))

    def input_join(self, source: Topic | Table, schema: pa.Schema, *, is_undated: bool = False) -> str:
        """Writes DuckDB's clauses that keep the `rows` of an input within `depends_within` of a scope.

        The scopes are the relation `scopes`, see `scopes_near`. A column that the input lacks, or of which a scope is
        of any value, does not count; without one that does they keep all rows of the scopes' times.

        Args:
            schema: the input's.
            is_undated: rows of it may lack their time: these are near every scope.
        """
        by = self._of_each(self.table.restricting(source, schema.names))
        readable = {n: one for n, one in by.items() if written_by(DUCKDB, one)}
        near = self._condition({}, source.event_time, self._input_slack_ms(source), has_undated=is_undated)
        where = f"WHERE {near.sql(DUCKDB, schema, 'rows')}"
        if not readable:
            return where
        return f"SEMI JOIN scopes ON {self._match(DUCKDB, readable, source.event_time, is_undated=is_undated)} {where}"

    def condition(self, closing: Literal["closed", "open"] | None = None) -> Condition:
        """Returns a condition that holds for all rows of the table in the scopes: closed, open or either."""
        return self._condition(self._own, self.table.event_time, 0, closing)

    def closing(self, closing: Literal["closed", "open"]) -> Condition:
        """Returns the condition that rows of the table are closed, or open, in the scopes and elsewhere."""
        return self._condition({}, None, 0, closing)

    def near(self, frame: DataFrame) -> DataFrame:
        """Filters the table's rows to a superset of those in the scopes."""
        return frame.where(self.condition().sql(SPARK, self.schema))

    def exact(self, frame: DataFrame) -> DataFrame:
        """Filters the table's rows, live or recomputed, to those in the scopes and closed."""
        rows = frame.where(self.condition("closed").sql(SPARK, self.schema))
        return rows if self._is_everything else self._within(rows, self._valued, self.table.event_time, 0, self.schema)

    def is_closed(self, rows: DataFrame) -> SparkColumn:
        """Whether a row of these, live or recomputed, is closed: one without a closing time is not."""
        from pyspark.sql import functions as F

        return F.coalesce(F.expr(self.closing("closed").sql(SPARK, _schema(rows))), F.lit(False))

    def exact_sides(self, derived: DataFrame, live: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Filters recomputed and live rows to those in the scopes; keys with an open live row belong to the stream."""
        should = self.exact(derived)
        if self.leaves_open_rows:
            should = matching(should, live.where(~self.is_closed(live)), self.table.primary_key, "ANTI")
        return should, self.exact(live)

    def exact_join(self, open_rows: str | None = None) -> str:
        """Writes DuckDB's clauses that keep the table's `rows`, live or recomputed, in `scopes`.

        Args:
            open_rows: a relation with the live rows that are open; rows of their keys are left out.
        """
        near = self._condition({}, self.table.event_time, 0, "closed", has_undated=False)
        clauses = f"WHERE {near.sql(DUCKDB, self.schema, 'rows')}"
        if not self._is_everything:
            clauses = f"SEMI JOIN scopes ON {self._match(DUCKDB, self._valued, self.table.event_time)} {clauses}"
        if open_rows:
            same = same_key(DUCKDB, self.table.primary_key, "rows", open_rows)
            clauses += f" AND NOT EXISTS (SELECT 1 FROM {DUCKDB.name(open_rows)} WHERE {same})"
        return clauses

    def next_closings(self, live: DeltaTable, should: pa.Table | None = None) -> dict[Scope, int]:
        """Returns when the first open row of each scope closes, epoch milliseconds rounded down.

        Scopes without open rows are left out.

        Args:
            should: recomputed rows that count as the live ones do.
        """
        if not self.leaves_open_rows or not any(scope.interval for scope in self.scopes):
            return {}
        columns = self.table.statistics
        schema = pa.schema([self.schema.field(c) for c in columns])
        scanned = live.scan(columns=columns, predicate=self.condition("open").sql(DATAFUSION, schema))
        rows = [pa.RecordBatchReader.from_stream(scanned).cast(schema).read_all()]
        rows += [] if should is None else [should.select(columns).cast(schema)]
        at = DUCKDB.name("rows", self.table.closes_at or "")
        is_open = self.closing("open").sql(DUCKDB, self.schema, "rows")
        match = self._match(DUCKDB, self._valued, self.table.event_time)
        closings = query(
            f"SELECT _n AS n, epoch_ms(min({at})::TIMESTAMPTZ) AS closes_ms FROM rows JOIN scopes ON {match} "
            f"WHERE {is_open} AND {at} IS NOT NULL GROUP BY _n",
            scopes=self.own_scopes(),
            rows=pa.concat_tables(rows),
        )
        return {self.scopes[row["n"]]: row["closes_ms"] for row in closings.to_pylist()}

    def own_scopes(self) -> pa.Table:
        """Builds the relation of scopes that is joined with the table's rows."""
        at = self.schema.field(self.table.event_time).type if self.table.event_time else None
        return self._as_table(_columns_of(self.schema, self._own), at, 0)

    def scopes_near(self, source: Topic | Table, schema: pa.Schema) -> pa.Table:
        """Builds the relation of scopes that is joined with an input's rows, widened by `depends_within`."""
        by = self.table.restricting(source, schema.names)
        at = schema.field(source.event_time).type if source.event_time else None
        return self._as_table(_columns_of(schema, by), at, self._input_slack_ms(source))

    def is_near(self, source: Topic | Table) -> bool:
        """Whether all that is read of an input is within `depends_within` of a scope."""
        return self._input_slack_ms(source) == (self.table.depends_within_ms or 0)

    @property
    def leaves_open_rows(self) -> bool:
        """Whether rows that have not closed are the stream's."""
        return self._closes is not None

    def _input_slack_ms(self, source: Topic | Table) -> int:
        clock = source.clock if isinstance(source, Topic) else None
        return (self.table.depends_within_ms or 0) + (2 * clock.bound_ms if clock else 0)

    @property
    def _closes(self) -> str | None:
        return self.table.closes_at if self.closed_before_ms is not None else None

    @cached_property
    def _is_everything(self) -> bool:
        return any(s.interval is None and all(v is ... for v in s.values) for s in self.scopes)

    @cached_property
    def _all_values(self) -> list[set[Any]]:
        """The values of all scopes, for each column of `recompute_by`."""
        return [{s.values[n] for s in self.scopes} for n in range(len(self.table.recompute_by))]

    @cached_property
    def _intervals(self) -> list[Interval] | None:
        """The intervals of all scopes; None if a scope has none."""
        intervals = [s.interval for s in self.scopes if s.interval]
        return coalesce(intervals) if len(intervals) == len(self.scopes) else None

    @property
    def _own(self) -> dict[int, Expr]:
        """The columns of `recompute_by`, by their number."""
        return {n: column_of(column) for n, column in enumerate(self.table.recompute_by)}

    @property
    def _valued(self) -> dict[int, Expr]:
        """The columns of `recompute_by` for which some scope has a value, by their number."""
        return {n: column for n, column in self._own.items() if self._all_values[n] != {...}}

    def _of_each(self, by: Mapping[int, Expr]) -> dict[int, Expr]:
        """Filters values to those that each scope has, by the number of the column of `recompute_by`."""
        return {n: one for n, one in by.items() if ... not in self._all_values[n]}

    def _held(self, frame: DataFrame, schema: pa.Schema, by: Mapping[int, Expr]) -> dict[int, Expr]:
        """Filters values to columns, and to total expressions whose type can have the scopes' values."""
        computed = {n: one for n, one in by.items() if not isinstance(one, Column)}
        kinds = {f.name: f.type for f in schema}
        computed = {n: one for n, one in computed.items() if is_total(one, kinds)}
        types = _types(frame, computed) if computed else {}
        values = {n: [v for v in self._all_values[n] if v is not None] for n in computed}
        held = {n for n, kind in types.items() if kind and _holds(kind, values[n])}
        return {n: one for n, one in by.items() if isinstance(one, Column) or n in held}

    def _condition(
        self,
        by: Mapping[int, Expr],
        time: str | None,
        slack_ms: int,
        closing: Literal["closed", "open"] | None = None,
        *,
        has_undated: bool = True,
    ) -> Condition:
        """Returns the coarse condition of all scopes, widened by the slack.

        Args:
            by: number of a column of `recompute_by` -> the value that the relation has for it.
        """
        ranges = coalesce(interval.widened(slack_ms) for interval in self._intervals or ())
        return Condition(
            values={one: values for n, one in by.items() if _are_listed(values := self._all_values[n])},
            time=time,
            ranges=[Interval(ranges[0].start, ranges[-1].end)] if len(ranges) > _MANY_RANGES else ranges,
            has_undated=has_undated,
            closing=closing if self._closes else None,
            closes=self._closes or "",
            closed_before_ms=self.closed_before_ms or 0,
        )

    def _match(self, by: Dialect, values: Mapping[int, Expr], time: str | None, *, is_undated: bool = False) -> str:
        """Writes the condition that a row matches one of `scopes`, a relation by `_as_table`.

        Args:
            is_undated: rows may lack their time: these match scopes of every time.
        """
        parts, of = ["true"], "" if by is SPARK else "rows"
        for n, one in values.items():
            # By `=` DuckDB lets Arrow filter what it reads, for which NaN equals nothing, and -0.0 is not 0.0.
            is_exact = not any(isinstance(value, float | None) for value in self._all_values[n])
            same = f"{written_by(by, one, of)} {'=' if is_exact else 'IS NOT DISTINCT FROM'} scopes._v{n}"
            parts.append(f"(scopes._any{n} OR {same})" if ... in self._all_values[n] else same)
        if time and any(s.interval for s in self.scopes):
            at = by.name(*filter(None, (of, time)))
            either = [] if all(s.interval for s in self.scopes) else ["scopes._from IS NULL"]
            either += [f"{at} IS NULL"] if is_undated else []
            inside = f"{at} >= scopes._from AND {at} < scopes._until"
            parts.append(f"({' OR '.join([*either, inside])})" if either else inside)
        return " AND ".join(parts)

    def _as_table(self, types: Mapping[int, pa.DataType | None], at: pa.DataType | None, slack_ms: int) -> pa.Table:
        """Builds a relation of the scopes, numbered by `_n`: values, flags for any value, and times.

        Args:
            types: number of a column of `recompute_by` -> the type of the values that it is compared with, if known.
            at: the type of the times that the interval is compared with; None: there are none.
        """
        columns: dict[str, pa.Array] = {"_n": pa.array(range(len(self.scopes)), pa.int64())}
        for n, kind in types.items():
            values = [s.values[n] for s in self.scopes]
            columns[f"_v{n}"] = pa.array([None if v is ... else v for v in values], kind)
            columns[f"_any{n}"] = pa.array([v is ... for v in values], pa.bool_())
        instants = pa.timestamp("us", getattr(at, "tz", None))
        starts = [None if s.interval is None else (s.interval.start - slack_ms) * 1_000 for s in self.scopes]
        ends = [None if s.interval is None else (s.interval.end + slack_ms) * 1_000 for s in self.scopes]
        return pa.table({**columns, "_from": pa.array(starts, instants), "_until": pa.array(ends, instants)})

    def _within(
        self, rows: DataFrame, by: Mapping[int, Expr], time: str | None, slack_ms: int, schema: pa.Schema
    ) -> DataFrame:
        """Filters rows to those with a scope's values and in its widened interval, or without their time."""
        from pyspark.sql import functions as F

        scopes = self._as_table(_types(rows, by), schema.field(time).type if time else None, slack_ms)
        frame = F.broadcast(rows.sparkSession.createDataFrame(scopes)).alias("scopes")
        return rows.join(frame, F.expr(self._match(SPARK, by, time, is_undated=True)), "left_semi")


def _are_listed(values: Collection[Any]) -> bool:
    """Whether values are known, few, and no floats, in which engines disagree about NaN and -0.0."""
    return ... not in values and len(values) <= _MANY_VALUES and not any(isinstance(v, float) for v in values)


def _types(frame: DataFrame, by: Mapping[int, Expr]) -> dict[int, pa.DataType | None]:
    """Returns the type of each value in the rows of a frame, by its number."""
    from pyspark.sql import functions as F

    schema = _schema(frame.select(*(F.expr(written_by(SPARK, one) or "").alias(f"_k{n}") for n, one in by.items())))
    return {n: schema.field(f"_k{n}").type for n in by}


def _schema(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")


def _columns_of(schema: pa.Schema, by: Mapping[int, Expr]) -> dict[int, pa.DataType | None]:
    """Returns the type of each column, by its number; None if the value is no column."""
    return {n: schema.field(one.name).type if isinstance(one, Column) else None for n, one in by.items()}


def whole_rows(table: Table, live: DeltaTable, scopes: Sequence[Scope]) -> Sequence[Scope]:
    """Widens the scopes to the whole live rows that they meet, if rows cover a time."""
    starts_at, ends_at = table.event_time, table.ends_at
    if not (starts_at and ends_at) or any(s.interval is None for s in scopes):
        return scopes
    by, start, end = list(map(DUCKDB.name, table.recompute_by)), DUCKDB.name(starts_at), DUCKDB.name(ends_at)
    first = min((s.interval.start for s in scopes if s.interval), default=0)
    last = max((s.interval.end for s in scopes if s.interval), default=0)
    connection = duckdb_utc()
    connection.register("live", live.scan())
    met = f"FROM live WHERE {start} <= ? AND {end} >= ?"
    times, of_any = [from_epoch_ms(last), from_epoch_ms(first)], tuple(... for _ in by)
    start_ms, end_ms = f"epoch_ms({start}::TIMESTAMP)", f"epoch_ms({end}::TIMESTAMP)"
    if all(s.values == of_any for s in scopes) and len(scopes) == 1:
        [span] = connection.execute(f"SELECT min({start_ms}), max({end_ms}) {met}", times).fetchall()
        return scopes if span[0] is None else whole(scopes, [(of_any, *span)])
    spans = connection.execute(f"SELECT {', '.join([*by, ''])} {start_ms}, {end_ms} {met}", times).fetchall()
    return whole(scopes, ((tuple(span[: len(by)]), span[-2], span[-1]) for span in spans))


def with_held_values(scopes: Sequence[Scope], kinds: Sequence[Collection[pa.DataType]]) -> list[Scope]:
    """Widens scopes to any value in columns in which a relation cannot have each value exactly.

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
    """Returns the families of a type; types with a common family compare by value."""
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
