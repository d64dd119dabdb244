"""Refreshes a table: touched scopes -> recompute -> difference -> publish the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.infra.delta.delta_writer import Written
from twofold.infra.delta.file_pruning import PrunedFiles, has_undated, prune_files
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.open_table import OpenTable
from twofold.infra.duckdb_session import duckdb_utc, query
from twofold.infra.rows.rows import are_here, in_spark
from twofold.infra.rows.sizes import (
    COMPARED,
    COMPRESSED,
    HANDED_OVER,
    HELD_BYTES,
    SEARCHED,
    collect_if_small,
    collected,
    is_small,
    most_rows,
)
from twofold.infra.spark.plan_template import PlanTemplate, has_jvm
from twofold.infra.spark.spark_session import tune_for_batch_size
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Strategy, Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import code_facts, require_one_definition
from twofold.tables.refresh.derived_rows import (
    declared_columns,
    derive,
    few_of,
    first_of_all,
    greatest_by,
    input_of,
    one_of_each_key,
)
from twofold.tables.refresh.published_table import PublishedTable
from twofold.tables.refresh.scope import Scope, everything, of_every_date
from twofold.tables.refresh.scope_predicates import ScopeFilter, whole_rows, with_held_values
from twofold_algebra.sql.names import DATAFUSION, SPARK

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from twofold.infra.rows.rows import Rows


_CLOSED = "_closed"


@dataclass(frozen=True)
class _Input:
    """The rows of one input that are read.

    Attributes:
        data: in this process as they are stored; a frame is as the table's function takes it.
        rows: at most so many, None if that is not known.
        size: bytes in memory of those rows, at a guess if Spark reads them.
        is_near: none of them is further than the depends_within from a scope.
    """

    data: Rows
    rows: int | None
    size: int
    is_near: bool


@dataclass(frozen=True)
class _Recomputed:
    """Rows by the table's function, of scopes and maybe around them.

    Attributes:
        live: the table as it was before its inputs were read.
        few: the rows, in this process; None if they are many.
        bound: this process compares at most so many.
        most_held: this process holds at most so many of their width; None if Spark compares in any case.
        is_undated: some of them lack the table's event time, so that no time limits their inputs.
    """

    scopes: ScopeFilter
    live: DeltaTable
    frame: DataFrame
    few: pa.Table | None
    bound: int
    most_held: int | None
    is_undated: bool


@dataclass(frozen=True)
class _Compared:
    """How the rows that scopes have differ from those that they should have.

    Attributes:
        most_held: see `_Recomputed`.
        closings: scope -> when its first open row closes; scopes without open rows are left out.
    """

    difference: Rows
    most_held: int | None
    closings: Mapping[Scope, int]


@dataclass(frozen=True)
class Refreshed:
    """The effect of a refresh, and when its scopes are to be refreshed again.

    Attributes:
        next_closing_ms: scope -> the time until which no row of it closes, by its open rows: live ones alone if rows
            are many. Without such it is the scope's end: a row that is made meanwhile is closed by then.
    """

    written: Written
    next_closing_ms: Mapping[Scope, int]


@dataclass
class Refresher:
    """Recomputes parts of one table from its inputs, and publishes what differs.

    The table is read before its inputs, each time. Rows that a stream adds meanwhile are then in the inputs at most: a
    row of it that is inserted here is the one that the stream inserts. Such a row would look
    superfluous in the other order.

    Attributes:
        closed_before_ms: rows whose `closes_at` is at or after it are the stream's and are left alone; None: all rows
            are ours.
        versions: input -> Delta version to read; an input that is not named is read as it is now.
    """

    spark: SparkSession
    lake: Lake
    registry: Registry
    table: Table
    closed_before_ms: int | None = None
    versions: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._strategy = self.registry.strategy(self.table)
        of_one = partial(require_one_definition, self.lake, self.table, self.registry)
        self._target = replace(PublishedTable.of_table(self.spark, self.lake, self.table), require=of_one)
        if self._has_rivals:
            self._target = replace(self._target, greatest=greatest_by(self.table, self._target.columns()))
        self._analyzed: tuple[Sequence[pa.Schema], PlanTemplate] | None = None
        self._inputs: dict[str, OpenTable] = {}
        self._open: dict[str, DeltaTable] = {}

    def publish(self, scopes: Sequence[Scope], info: Mapping[str, object], *, check: bool) -> Refreshed:
        """Publishes the recomputed scopes to the live table, as `PublishedTable.publish` does.

        A row that meets one of its key outside of the scopes takes its place.

        Args:
            info: what the commit says of itself; the definition, the versions that were read, and the watermark if it
                names none, are added.
            check: refuse rows that break the table's rules.
        """
        closings: Mapping[Scope, int] = {}

        def changes(attempt: int) -> tuple[Rows, Mapping[str, object]]:
            nonlocal closings
            compared = self._compared(scopes)
            rows, closings = compared.difference, compared.closings
            if attempt and not self._has_rivals:
                rows = self._target.moved(rows)
            return collect_if_small(self.lake.settings, rows, compared.most_held), self._info(info)

        written = self._target.publish(changes, check=check) if scopes else Written()
        return Refreshed(written, {scope: self._next_closing_ms(scope, closings) for scope in scopes})

    @property
    def has_other_columns(self) -> bool:
        """Whether the table's function returns other columns, or types, than the table has."""
        columns = declared_columns(self.spark, self.lake, self.registry, self.table)
        return {c.name: c.dataType.simpleString() for c in columns} != dict(self._target.live().dtypes)

    def replace(self, info: Mapping[str, object]) -> Written:
        """Replaces the table's rows and columns by the result of its function.

        Rows that are not closed are those of this moment: the stream of the new definition writes them again.

        Raises:
            QualityFailed: a row breaks the table's rules; nothing was published.
        """
        return self._target.replace(self._derived(self._wanted(everything(self.table)))[0], self._info(info))

    def sides(self, scopes: Sequence[Scope]) -> tuple[DataFrame, DataFrame]:
        """Returns the rows that the scopes should have, by the table's function, and those that they have.

        Keys with an open live row are left out: the stream may still revise that row.
        """
        scope_filter, live = self._wanted(self._of_every_date(scopes)), self._target.live()
        return scope_filter.exact_sides(self._derived(scope_filter)[0], live)

    def difference(self, scopes: Sequence[Scope]) -> Rows:
        """Computes how live rows of the scopes differ from recomputed ones; a table in memory if rows are few."""
        return self._compared(scopes).difference

    def live_rows(self, scopes: Sequence[Scope]) -> int:
        """Counts the table's rows in the scopes."""
        table, scope_filter = self._target.newest(), self._wanted(scopes)
        near = scope_filter.condition().sql(DATAFUSION, scope_filter.schema)
        rows = query(
            f"SELECT count(*) AS n FROM rows {scope_filter.exact_join()}",
            scopes=scope_filter.own_scopes(),
            rows=pa.RecordBatchReader.from_stream(table.scan(predicate=near)),
        )
        return int(rows["n"][0].as_py())

    def input_rows(self, scopes: Sequence[Scope]) -> int | None:
        """Counts the rows of input files that may matter to the scopes; None if unknown."""
        scope_filter, total = self._wanted(scopes), 0
        for declaration in self.registry.upstream(self.table):
            table = self.opened(declaration.full_name)
            rows = prune_files(
                table, scope_filter.input_condition(declaration, [f.name for f in table.schema().fields]).bounds()
            ).rows
            if rows is None:
                return None
            total += rows
        return total

    def opened(self, name: str) -> DeltaTable:
        """Opens an input, at its pinned version or at its newest."""
        if name not in self.versions:
            self._open[name] = self._inputs.setdefault(name, OpenTable(self.lake, name)).newest()
        elif name not in self._open:
            self._open[name] = self.lake.open(name, self.versions[name])
        return self._open[name]

    def _info(self, info: Mapping[str, object]) -> Mapping[str, object]:
        """Returns the info for the commit of the last recomputation."""
        closed = {} if self.closed_before_ms is None else {"watermark_ms": self.closed_before_ms}
        read = {name: int(table.version()) for name, table in self._open.items()}
        return {**closed, **info, **code_facts(self.table, self.registry), "inputs": read}

    def _wanted(self, scopes: Sequence[Scope]) -> ScopeFilter:
        scopes = with_held_values(scopes, self._kinds)
        schema = pa.schema(self._target.newest().schema())
        return ScopeFilter(self.table, scopes, schema, self.closed_before_ms if self.table.closes_at else None)

    @cached_property
    def _kinds(self) -> list[list[pa.DataType]]:
        """The types of each column of `recompute_by`, in the table and in the inputs that have it."""
        own = self.table.recompute_by
        relations: list[tuple[Sequence[str | None], pa.Schema]] = [(own, pa.schema(self._target.newest().schema()))]
        for source in self.registry.upstream(self.table):
            relations.append((self.table.scope_in(source), pa.schema(self.opened(source.full_name).schema())))
        return [
            [schema.field(names[n]).type for names, schema in relations if names[n] in schema.names]
            for n in range(len(own))
        ]

    @property
    def _has_rivals(self) -> bool:
        """Whether a row of the scopes can meet another of its key that lies outside of them."""
        return bool(self.table.sequence_by) and self._strategy is not Strategy.LATEST

    def _of_every_date(self, scopes: Sequence[Scope]) -> Sequence[Scope]:
        """Widens the scopes to every date if rows lack theirs, since no time limits their inputs."""
        time = self.table.event_time if any(scope.interval for scope in scopes) else None
        return of_every_date(scopes) if time and has_undated(self._target.newest(), time) else scopes

    def _next_closing_ms(self, scope: Scope, closings: Mapping[Scope, int]) -> int:
        if scope.interval is None:
            return self.closed_before_ms or 0
        return closings.get(scope, scope.interval.end + (self.table.depends_within_ms or 0))

    def _compared(self, scopes: Sequence[Scope]) -> _Compared:
        """Recomputes the scopes, and compares with their live rows: in this process if both are few, else in Spark."""
        scopes = self._of_every_date(whole_rows(self.table, self._target.newest(), scopes))
        recomputed = self._recomputed(scopes)
        if recomputed.is_undated and any(scope.interval for scope in scopes):
            recomputed = self._recomputed(of_every_date(scopes))
        scope_filter, table = recomputed.scopes, recomputed.live
        small = self._small_sides(recomputed)
        closings = scope_filter.next_closings(table, recomputed.few if small else None)
        sides = small or scope_filter.exact_sides(
            recomputed.frame, self.lake.frame(self.spark, self.table.full_name, int(table.version()))
        )
        return _Compared(self._target.difference(*sides), recomputed.most_held, closings)

    def _recomputed(self, scopes: Sequence[Scope]) -> _Recomputed:
        scope_filter, live = self._wanted(scopes), self._target.newest()
        derived, read = self._derived(scope_filter)
        bound, most_held, few = 0, None, None
        if self.lake.settings.engine != "spark":
            most_held = _most_of_width(read)
            bound = min(most_rows(self.lake.settings, COMPARED), most_held)
            few = _collected(scope_filter, derived, read, bound)
        is_undated = self._is_undated(scope_filter, derived if few is None else few)
        return _Recomputed(scope_filter, live, derived, few, bound, most_held, is_undated)

    def _is_undated(self, scope_filter: ScopeFilter, rows: Rows) -> bool:
        """Whether recomputed rows lack their date; many are looked through if it pays: rows of windows have one."""
        time = self.table.event_time
        if time is None or are_here(rows):
            return bool(time and rows[time].null_count)
        if time in self.table.primary_key or self.table.closes_at or not any(s.interval for s in scope_filter.scopes):
            return False
        return not scope_filter.exact(rows).where(f"{SPARK.name(time)} IS NULL").isEmpty()

    def _small_sides(self, recomputed: _Recomputed) -> tuple[pa.Table, pa.Table] | None:
        """Returns both sides if they are few rows, else None.

        Spark recomputes; the live side is read in this process, which spares most of a small refresh.
        """
        if recomputed.few is None:
            return None
        table, scope_filter, bound = recomputed.live, recomputed.scopes, recomputed.bound
        schema, scope_table = scope_filter.schema, scope_filter.own_scopes()
        connection = duckdb_utc()
        connection.register("scopes", scope_table)

        def chosen(rows: pa.Table | pa.RecordBatchReader, clauses: str) -> pa.Table:
            connection.register("rows", rows)
            selected = connection.sql(f"SELECT rows.* FROM rows {clauses} LIMIT {bound + 1}")
            return selected.to_arrow_table().cast(schema)

        open_rows = "open" if scope_filter.leaves_open_rows else None
        if open_rows:
            is_open = scope_filter.closing("open").sql(DATAFUSION, schema)
            connection.register(open_rows, table.scan(columns=list(self.table.primary_key), predicate=is_open))
        should = chosen(recomputed.few.select(schema.names).cast(schema), scope_filter.exact_join(open_rows))
        files = prune_files(table, scope_filter.condition().bounds())
        live = files.read_if_small(scope_filter.exact_join(), scope_table, bound, schema.names)
        if live is None:
            # delta-rs gives views of strings, which DuckDB cannot filter where it reads them.
            near_sql = scope_filter.condition().sql(DATAFUSION, schema)
            rows = pa.RecordBatchReader.from_stream(table.scan(predicate=near_sql)).cast(schema)
            live = chosen(rows, scope_filter.exact_join())
        return (should, live) if len(live) <= bound else None

    def _derived(self, scope_filter: ScopeFilter) -> tuple[DataFrame, list[_Input]]:
        """Computes rows by the table's function over all inputs that the scopes need; also returns these inputs.

        The session plans its next queries for as many rows.
        """
        sources = self.registry.upstream(self.table)
        read = [self._input(source, scope_filter) for source in sources]
        frames = [part.rows for part in read if part.rows is not None]
        few = len(frames) == len(read) and is_small(self.lake.settings, sum(frames))
        tune_for_batch_size(self.spark, few=few)
        held = [part.data for part in read if are_here(part.data)]
        if len(held) == len(read) and not scope_filter.leaves_open_rows and has_jvm(self.spark):
            return self._template([rows.schema for rows in held]).over(held), read
        inputs = {
            name: few_of(source, in_spark(self.spark, part.data), self.table) if are_here(part.data) else part.data
            for name, source, part in zip(self.table.inputs, sources, read, strict=True)
        }
        rows = derive(self.table, inputs)
        if not scope_filter.leaves_open_rows:
            return one_of_each_key(rows, self.table, self._strategy), read
        # Of a key that has closed rows one of these stays. The open ones say when a scope has to be looked at again.
        rows = one_of_each_key(
            rows.withColumn(_CLOSED, scope_filter.is_closed(rows)), self.table, self._strategy, closed=_CLOSED
        )
        return rows.drop(_CLOSED), read

    def _template(self, schemas: Sequence[pa.Schema]) -> PlanTemplate:
        """Returns the rows of the table's function, one of each key, as a query over inputs of these schemas."""
        if self._analyzed is None or self._analyzed[0] != schemas:

            def build(frames: Sequence[DataFrame]) -> DataFrame:
                named = zip(self.table.inputs, self.registry.upstream(self.table), frames, strict=True)
                inputs = {name: few_of(source, frame, self.table) for name, source, frame in named}
                return one_of_each_key(derive(self.table, inputs), self.table, self._strategy)

            self._analyzed = schemas, PlanTemplate(self.spark, schemas, build)
        return self._analyzed[1]

    def _input(self, declaration: Topic | Table, wanted: ScopeFilter) -> _Input:
        table = self.opened(declaration.full_name)
        schema = pa.schema(table.schema())
        files = prune_files(table, wanted.input_condition(declaration, schema.names).bounds())
        few = self._few(files, declaration, wanted)
        if few is None:
            many = files.rows is None or files.rows > most_rows(self.lake.settings, COMPARED)
            frame = wanted.inputs(files.frame(self.spark), declaration, schema, each=many)
            frame = input_of(declaration, frame, self.table, self._strategy, (wanted, table))
            return _Input(frame, files.rows, COMPRESSED * files.size, is_near=False)
        return _Input(few, len(few), few.nbytes, is_near=wanted.is_near(declaration))

    def _few(self, files: PrunedFiles, declaration: Topic | Table, wanted: ScopeFilter) -> pa.Table | None:
        """Reads the rows of an input that matter into this process, each once, if that is faster than Spark."""
        settings = self.lake.settings
        if settings.engine == "spark" or files.rows is None or files.rows > most_rows(settings, SEARCHED):
            return None
        schema = pa.schema(files.table.schema())
        columns = schema.names
        if isinstance(declaration, Topic):
            columns = [c for c in columns if not c.startswith("_") or c in (PARTITION, OFFSET)]
        rows = files.read_if_small(
            wanted.input_join(declaration, schema, is_undated=files.is_undated),
            wanted.scopes_near(declaration, schema),
            most_rows(settings, HANDED_OVER),
            columns,
        )
        if rows is not None and isinstance(declaration, Topic) and self._strategy.removes_repeats:
            return first_of_all(rows, declaration, wanted, files.table, most_rows(settings, HANDED_OVER))
        return rows


def _collected(scope_filter: ScopeFilter, derived: DataFrame, read: Sequence[_Input], bound: int) -> pa.Table | None:
    """Collects at least the rows in the scopes; None if they are more than the bound."""
    if all(part.rows is not None for part in read) and sum(part.rows or 0 for part in read) <= bound:
        near = derived if all(part.is_near for part in read) else scope_filter.near(derived)
        # A join of few rows can be more than a JVM holds; the limit costs a job, so it is for such alone.
        joined = prod(max(part.rows or 0, 1) for part in read)
        rows = collected(near if joined <= bound else near.limit(bound + 1))
    else:
        # What the inputs do not bound takes a join, and a limit, which costs a job.
        rows = collected(scope_filter.exact(derived).limit(bound + 1))
    return rows if are_here(rows) and len(rows) <= bound else None


def _most_of_width(read: Sequence[_Input]) -> int:
    """Returns the number of rows, as wide as those of the inputs, that a process should hold."""
    rows, size = sum(part.rows or 0 for part in read), sum(part.size for part in read if part.rows)
    return HELD_BYTES * rows // size if size else HELD_BYTES
