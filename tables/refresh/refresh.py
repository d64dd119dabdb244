"""Refreshes a table: touched scopes -> recompute -> difference -> publish the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from twofold.infra.delta.delta_writer import CHANGE, Written
from twofold.infra.delta.file_pruning import PrunedFiles, has_undated, prune_files
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.open_table import OpenTable
from twofold.infra.duckdb_session import duckdb_utc, query
from twofold.infra.instants import from_epoch_ms
from twofold.infra.rows.rows import are_here, here, in_spark
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
from twofold.infra.sql.names import DATAFUSION, DUCKDB, SPARK
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
from twofold.tables.refresh.scope import Scope, everything, merged, whole
from twofold.tables.refresh.scope_predicates import ScopeFilter, with_held_values
from twofold.tables.refresh.target import Target

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
        self._target = replace(Target.of_table(self.spark, self.lake, self.table), require=of_one)
        if self._has_rivals:
            self._target = replace(self._target, greatest=greatest_by(self.table, self._target.columns()))
        self._closings: Mapping[Scope, int] = {}
        self._most_held: int | None = None
        self._is_undated = False
        self._analyzed: tuple[Sequence[pa.Schema], PlanTemplate] | None = None
        self._inputs: dict[str, OpenTable] = {}
        self._open: dict[str, DeltaTable] = {}

    def publish(self, scopes: Sequence[Scope], info: Mapping[str, object], *, check: bool) -> Written:
        """Publishes the recomputed scopes to the live table, as `Target.publish` does.

        A row that meets one of its key outside of the scopes takes its place.

        Args:
            info: what the commit says of itself; the definition, the versions that were read, and the watermark if it
                names none, are added.
            check: refuse rows that break the table's rules.
        """
        if not scopes:
            return Written()

        def changes(attempt: int) -> tuple[Rows, Mapping[str, object]]:
            difference = self.difference(scopes)
            rows = self.moved(difference) if attempt else difference
            return collect_if_small(self.lake.settings, rows, self._most_held), self._info(info)

        return self._target.publish(changes, check=check)

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
        scopes = everything(self.table)
        return self._target.replace(self._derived(scopes)[0], self._info(info))

    def sides(self, scopes: Sequence[Scope]) -> tuple[DataFrame, DataFrame]:
        """Returns the rows that the scopes should have, by the table's function, and those that they have.

        Keys with an open live row are left out: the stream may still revise that row.
        """
        scopes = self._of_every_date(scopes)
        scope_filter, live = self._wanted(scopes), self._target.live()
        should = scope_filter.exact(self._derived(scopes)[0])
        if scope_filter.leaves_open_rows:
            should = scope_filter.without_open(should, live)
        return should, scope_filter.exact(live)

    def difference(self, scopes: Sequence[Scope]) -> Rows:
        """Computes the difference between the live rows of the scopes and the recomputed ones.

        Returns:
            A table in memory if rows are few, else a frame.
        """
        scopes = self._of_every_date(self._whole(scopes))
        small = self._small_sides(scopes) if self.lake.settings.engine != "spark" else None
        if self._is_undated and any(scope.interval for scope in scopes):
            return self.difference(scopes)
        if small is not None:
            return self._target.difference(*small)
        self._closings = self._next_closings(self._target.newest(), scopes)
        should, live = self.sides(scopes)
        undated = f"{SPARK.name(self.table.event_time or '')} IS NULL"
        if self._may_be_undated(scopes) and not should.where(undated).isEmpty():
            self._is_undated = True
            return self.difference(scopes)
        return self._target.difference(should, live)

    def next_closing_ms(self, scope: Scope) -> int:
        """Returns the time until which no row of a scope closes, by the open rows of the last difference.

        If it has seen none, the scope waits for its end: a row that is made meanwhile is closed by then. If rows
        are many it has looked at live ones alone.

        Args:
            scope: one of those whose difference was asked for, with an interval.
        """
        if scope.interval is None:
            return self.closed_before_ms or 0
        return self._closings.get(scope, scope.interval.end + (self.table.depends_within_ms or 0))

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

    def moved(self, changes: Rows) -> Rows:
        """Turns each insert that meets a row of its key into an update of that row.

        Such a row stood outside of the scopes when it was computed last, and has moved into them since. If a greater
        row stays in any case, that is for the writer to see.
        """
        if self._has_rivals:
            return changes
        columns, target = self._target.columns(), self._target
        if not are_here(changes):
            inserts = changes.where(f"{CHANGE} = 'insert'").select(*columns)
            return changes.where(f"{CHANGE} <> 'insert'").unionByName(
                target.difference(inserts, target.rows_of(inserts))
            )
        is_insert = pc.equal(changes[CHANGE], "insert")
        inserts = changes.filter(is_insert).select(columns)
        changed = target.difference(inserts, here(target.rows_of(inserts)).select(columns).cast(inserts.schema))
        return pa.concat_tables([changes.filter(pc.invert(is_insert)), changed.select(changes.column_names)])

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

    def _whole(self, scopes: Sequence[Scope]) -> Sequence[Scope]:
        """Widens the scopes to the whole rows that they meet, if rows cover a time."""
        starts_at, ends_at = self.table.event_time, self.table.ends_at
        if not (starts_at and ends_at) or any(s.interval is None for s in scopes):
            return scopes
        by, start, end = list(map(DUCKDB.name, self.table.recompute_by)), DUCKDB.name(starts_at), DUCKDB.name(ends_at)
        first = min((s.interval.start for s in scopes if s.interval), default=0)
        last = max((s.interval.end for s in scopes if s.interval), default=0)
        connection = duckdb_utc()
        connection.register("live", self._target.newest().scan())
        met = f"FROM live WHERE {start} <= ? AND {end} >= ?"
        times, of_any = [from_epoch_ms(last), from_epoch_ms(first)], tuple(... for _ in by)
        start_ms, end_ms = f"epoch_ms({start}::TIMESTAMP)", f"epoch_ms({end}::TIMESTAMP)"
        if all(s.values == of_any for s in scopes) and len(scopes) == 1:
            [span] = connection.execute(f"SELECT min({start_ms}), max({end_ms}) {met}", times).fetchall()
            return scopes if span[0] is None else whole(scopes, [(of_any, *span)])
        spans = connection.execute(f"SELECT {', '.join([*by, ''])} {start_ms}, {end_ms} {met}", times).fetchall()
        return whole(scopes, ((tuple(span[: len(by)]), span[-2], span[-1]) for span in spans))

    def _of_every_date(self, scopes: Sequence[Scope]) -> Sequence[Scope]:
        """Widens the scopes to every date if rows lack theirs, since no time limits their inputs."""
        time = self.table.event_time
        if time is None or all(scope.interval is None for scope in scopes):
            return scopes
        self._is_undated = self._is_undated or has_undated(self._target.newest(), time)
        return merged(Scope(scope.values, None) for scope in scopes) if self._is_undated else scopes

    def _may_be_undated(self, scopes: Sequence[Scope]) -> bool:
        """Whether it pays to look for rows without a date among many; rows of windows always have one."""
        time = self.table.event_time
        is_one = time is not None and time not in self.table.primary_key and self.table.closes_at is None
        return is_one and any(scope.interval for scope in scopes)

    def _small_sides(self, scopes: Sequence[Scope]) -> tuple[pa.Table, pa.Table] | None:
        """Returns both sides if they are few rows, else None.

        Spark recomputes; the live side is read in this process, which spares most of a small refresh.
        """
        table = self._target.newest()
        scope_filter = self._wanted(scopes)
        has_open_rows = scope_filter.leaves_open_rows
        derived, read = self._derived(scopes)
        self._most_held = _most_of_width(read)
        bound = min(most_rows(self.lake.settings, COMPARED), self._most_held)
        if all(one.rows is not None for one in read) and sum(one.rows or 0 for one in read) <= bound:
            near = derived if all(one.is_near for one in read) else scope_filter.near(derived)
            # A join of few rows can be more than a JVM holds; the limit costs a job, so it is for such alone.
            joined = prod(max(one.rows or 0, 1) for one in read)
            should = collected(near if joined <= bound else near.limit(bound + 1))
        else:
            # What the inputs do not bound takes a join, and a limit, which costs a job.
            should, has_open_rows = collected(scope_filter.exact(derived).limit(bound + 1)), False
        if not are_here(should) or len(should) > bound:
            return None
        if self.table.event_time and should[self.table.event_time].null_count:
            self._is_undated = True
            if any(scope.interval for scope in scopes):
                return None
        schema, scope_table = scope_filter.schema, scope_filter.own_scopes()
        connection = duckdb_utc()
        connection.register("scopes", scope_table)

        def chosen(rows: pa.Table | pa.RecordBatchReader, clauses: str) -> pa.Table:
            connection.register("rows", rows)
            found = connection.sql(f"SELECT rows.* FROM rows {clauses} LIMIT {bound + 1}")
            return found.to_arrow_table().cast(schema)

        open_rows = "open" if scope_filter.leaves_open_rows else None
        if open_rows:
            is_open = scope_filter.closing("open").sql(DATAFUSION, schema)
            connection.register(open_rows, table.scan(columns=list(self.table.primary_key), predicate=is_open))
        should = should.select(schema.names).cast(schema)
        self._closings = self._next_closings(table, scopes, should if has_open_rows else None)
        should = chosen(should, scope_filter.exact_join(open_rows))
        files = prune_files(table, scope_filter.condition().bounds())
        live = files.read_if_small(scope_filter.exact_join(), scope_table, bound, schema.names)
        if live is None:
            # delta-rs gives views of strings, which DuckDB cannot filter where it reads them.
            near_sql = scope_filter.condition().sql(DATAFUSION, schema)
            rows = pa.RecordBatchReader.from_stream(table.scan(predicate=near_sql)).cast(schema)
            live = chosen(rows, scope_filter.exact_join())
        return (should, live) if len(live) <= bound else None

    def _next_closings(
        self, table: DeltaTable, scopes: Sequence[Scope], should: pa.Table | None = None
    ) -> dict[Scope, int]:
        """Returns when the first open row of each scope closes; scopes without open rows are left out."""
        scope_filter = self._wanted(scopes)
        if not scope_filter.leaves_open_rows or not any(scope.interval for scope in scopes):
            return {}
        columns = self.table.statistics
        schema = pa.schema([scope_filter.schema.field(c) for c in columns])
        predicate = scope_filter.condition("open").sql(DATAFUSION, schema)
        live = pa.RecordBatchReader.from_stream(table.scan(columns=columns, predicate=predicate)).cast(schema)
        parts = [live.read_all(), *([] if should is None else [should.select(columns)])]
        connection = duckdb_utc()
        connection.register("scopes", scope_filter.own_scopes())
        connection.register("rows", pa.concat_tables(parts))
        closings = connection.sql(scope_filter.next_closings()).fetchall()
        return {scope_filter.scopes[number]: closes_ms for number, closes_ms in closings}

    def _derived(self, scopes: Sequence[Scope]) -> tuple[DataFrame, list[_Input]]:
        """Computes rows by the table's function over all inputs that the scopes need; also returns these inputs.

        The session plans its next queries for as many rows.
        """
        scope_filter = self._wanted(scopes)
        sources = self.registry.upstream(self.table)
        read = [self._input(source, scope_filter) for source in sources]
        frames = [one.rows for one in read if one.rows is not None]
        few = len(frames) == len(read) and is_small(self.lake.settings, sum(frames))
        tune_for_batch_size(self.spark, few=few)
        held = [one.data for one in read if are_here(one.data)]
        if len(held) == len(read) and not scope_filter.leaves_open_rows and has_jvm(self.spark):
            return self._template([rows.schema for rows in held]).over(held), read
        inputs = {
            name: few_of(source, in_spark(self.spark, one.data), self.table) if are_here(one.data) else one.data
            for name, source, one in zip(self.table.inputs, sources, read, strict=True)
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


def _most_of_width(read: Sequence[_Input]) -> int:
    """Returns the number of rows, as wide as those of the inputs, that a process should hold."""
    rows, size = sum(one.rows or 0 for one in read), sum(one.size for one in read if one.rows)
    return HELD_BYTES * rows // size if size else HELD_BYTES
