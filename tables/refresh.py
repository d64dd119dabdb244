"""The one primitive: touched scopes -> recompute them -> difference -> publish the difference."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

import pyarrow as pa
import pyarrow.compute as pc

from infra.duck import duckdb_utc
from infra.errors import QualityFailed, WriteConflict
from tables.declaration import Table, Topic
from tables.decode import OFFSET, PARTITION
from tables.derive import derive, first_of_each, first_of_each_in_memory, greatest_by, latest_of_each, payload
from tables.difference import difference, difference_of_tables, matching
from tables.fingerprint import fingerprint
from tables.lake import Lake
from tables.open_table import OpenTable
from tables.outcome import run_name as run_name
from tables.registry import Registry
from tables.scope import Scope, from_epoch_ms, whole
from tables.scope_filter import ScopeFilter
from tables.slice import Slice, slice_of
from tables.writer import CHANGE, Stamp, Writer, Written

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_ATTEMPTS = 5
_FENCE = "refresh"
_ROWS_IN_MEMORY = 50  # times the rows of a small commit: to be held and compared in one process
_ROWS_LOOKED_AT = 1_000  # times as many: to be looked through in this process for those that matter
_ROWS_HANDED_ON = 10  # times as many: to be handed to Spark from here
_log = logging.getLogger("twofold.refresh")


@dataclass(frozen=True)
class _Input:
    """What is read of one input.

    Attributes:
        rows: at most so many, None where that is not known.
        is_near: none of them is further than the lookback from a scope.
    """

    frame: DataFrame
    rows: int | None
    is_near: bool


@dataclass(frozen=True)
class Refresher:
    """Recomputes parts of one table from its inputs and publishes what differs.

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
    _writer: Writer = field(init=False, repr=False, compare=False)
    _inputs: dict[str, OpenTable] = field(default_factory=dict, init=False, repr=False, compare=False)
    _open: dict[str, DeltaTable] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_writer", Writer(self.lake, self.table.full_name, self.spark))

    def recompute(self, scopes: Sequence[Scope]) -> DataFrame:
        """The rows that the scopes should hold, by the table's own function over its inputs.

        Of a key whose live row is open there is none: the stream may still revise that row.
        """
        wanted = self._wanted(scopes)
        rows = wanted.exact(self._derived(scopes)[0])
        if not wanted.leaves_open_rows:
            return rows
        return wanted.without_open(rows, self.lake.frame(self.spark, self.table.full_name))

    def live(self, scopes: Sequence[Scope]) -> DataFrame:
        """The rows that the scopes hold now."""
        return self._wanted(scopes).exact(self.lake.frame(self.spark, self.table.full_name))

    def difference(self, scopes: Sequence[Scope]) -> pa.Table | DataFrame:
        """How the live rows of the scopes differ from what they should be, as `tables.difference` tells it.

        Returns:
            A table in memory where rows are few, else a frame.
        """
        scopes = self._whole(scopes)
        small = self._small_difference(scopes) if self.lake.settings.engine != "spark" else None
        if small is not None:
            return small
        return difference(self.recompute(scopes), self.live(scopes), self.table.key, approximate=self.table.approximate)

    def input_rows(self, scopes: Sequence[Scope]) -> int | None:
        """Rows of the inputs in files that can hold some that matter to the scopes; None where that is not known."""
        wanted, found = self._wanted(scopes), 0
        for declaration in self.registry.upstream(self.table):
            table = self.opened(declaration.full_name)
            rows = slice_of(table, wanted.input_bounds(declaration, [f.name for f in table.schema().fields])).rows
            if rows is None:
                return None
            found += rows
        return found

    def _whole(self, scopes: Sequence[Scope]) -> Sequence[Scope]:
        """The scopes, widened to the rows that they meet where rows cover a time."""
        starts_at, ends_at = self.table.event_time, self.table.ends_at
        if not (starts_at and ends_at) or any(s.interval is None for s in scopes):
            return scopes
        by = [f'"{c}"' for c in self.table.recompute_by]
        first = min((s.interval.start for s in scopes if s.interval), default=0)
        last = max((s.interval.end for s in scopes if s.interval), default=0)
        connection = duckdb_utc()
        connection.register("live", self._writer.newest().scan())
        met = f'FROM live WHERE "{starts_at}" <= ? AND "{ends_at}" >= ?'
        times, of_any = [from_epoch_ms(last), from_epoch_ms(first)], tuple(... for _ in by)
        start_ms, end_ms = f'epoch_ms("{starts_at}"::TIMESTAMP)', f'epoch_ms("{ends_at}"::TIMESTAMP)'
        if all(s.values == of_any for s in scopes) and len(scopes) == 1:
            [span] = connection.execute(f"SELECT min({start_ms}), max({end_ms}) {met}", times).fetchall()
            return scopes if span[0] is None else whole(scopes, [(of_any, *span)])
        spans = connection.execute(f"SELECT {', '.join([*by, ''])} {start_ms}, {end_ms} {met}", times).fetchall()
        return whole(scopes, ((tuple(span[: len(by)]), span[-2], span[-1]) for span in spans))

    def _small_difference(self, scopes: Sequence[Scope]) -> pa.Table | None:
        """The difference where both sides are few rows; None where they are not.

        Spark recomputes; the live side is read and compared in this process, which spares most of a small refresh.
        """
        wanted, bound = self._wanted(scopes), self.lake.settings.small_rows * _ROWS_IN_MEMORY
        derived, read = self._derived(scopes)
        if all(one.is_near for one in read):
            should = derived.toArrow()
        elif all(one.rows is not None for one in read) and sum(one.rows or 0 for one in read) <= bound:
            should = wanted.near(derived).toArrow()
        else:
            # What the inputs do not bound takes a join, and a limit, which costs a job.
            should = wanted.exact(derived).limit(bound + 1).toArrow()
        if len(should) > bound:
            return None
        table = self._writer.newest()
        schema = pa.schema(table.schema())
        connection = duckdb_utc()
        known = wanted.as_table({f.name: f.type for f in schema})
        connection.register("scopes", known)

        def chosen(rows: pa.Table | pa.RecordBatchReader, clauses: str) -> pa.Table:
            connection.register("rows", rows)
            found = connection.sql(f"SELECT rows.* FROM rows {clauses} LIMIT {bound + 1}")
            return found.to_arrow_table().cast(schema)

        open_rows = "open" if wanted.leaves_open_rows else None
        if open_rows:
            connection.register(open_rows, table.scan(columns=list(self.table.key), predicate=wanted.open_sql(schema)))
        should = chosen(should.select(schema.names).cast(schema), wanted.exact_join(schema, open_rows))
        files = slice_of(table, wanted.bounds(schema.names))
        live = files.few(wanted.exact_join(schema), known, bound, schema.names)
        if live is None:
            # delta-rs gives views of strings, which DuckDB cannot filter where it reads them.
            rows = pa.RecordBatchReader.from_stream(table.scan(predicate=wanted.near_sql(schema))).cast(schema)
            live = chosen(rows, wanted.exact_join(schema))
        if len(live) > bound:
            return None
        return difference_of_tables(should, live, self.table.key, approximate=self.table.approximate)

    def _wanted(self, scopes: Sequence[Scope]) -> ScopeFilter:
        return ScopeFilter(self.table, scopes, self.closed_before_ms if self.table.closes_at else None)

    def _derived(self, scopes: Sequence[Scope]) -> tuple[DataFrame, list[_Input]]:
        """Rows by the table's function, of inputs that hold all that the scopes depend on; these inputs."""
        wanted = self._wanted(scopes)
        read = [self._input(declaration, wanted) for declaration in self.registry.upstream(self.table)]
        rows = derive(self.table, {name: one.frame for name, one in zip(self.table.inputs, read, strict=True)})
        if self.table.latest_by:
            rows = latest_of_each(wanted.closed(rows), self.table)
        elif self.registry.strategy(self.table) == "append":
            rows = rows.dropDuplicates(list(self.table.key))
        return rows, read

    def publish(self, scopes: Sequence[Scope], info: Mapping[str, object], *, check: bool) -> Written:
        """Bring the scopes of the live table to what they should hold, in one commit; none when nothing differs.

        Two refreshes of a table that overlap in time are fenced by its transaction id `refresh`: the slower one finds
        that the number it read has been used, and recomputes. A row that anybody else changed meanwhile is left alone
        and looked at again. A row that meets one of its key outside of the scopes takes its place.

        Args:
            info: what the commit says of itself, see `tables.writer.Stamp`.
            check: refuse rows that break the table's rules.

        Raises:
            QualityFailed: names the rules and a row that breaks them; nothing was published.
            WriteConflict: others changed the same rows, five times in a row.
        """
        if not scopes:
            return Written()
        info = {**info, "fingerprint": fingerprint(self.table)}
        if self.closed_before_ms is not None:
            info["watermark_ms"] = self.closed_before_ms
        total = Written()
        for attempt in range(_ATTEMPTS):
            number = self._writer.next_number(_FENCE)
            changes = self.difference(scopes)
            if attempt and not self._has_rivals:
                changes = self._moved(changes)
            if not isinstance(changes, pa.Table):
                changes = self._writer.collect(changes)
            wanted = len(changes) if isinstance(changes, pa.Table) else changes.count()
            if wanted == 0:
                return total
            if check:
                require_good(self.spark, self.table, changes)
            stamp = Stamp(app=_FENCE, version=number, info={**info, "inputs": self._read})
            columns = changes.column_names if isinstance(changes, pa.Table) else changes.columns
            greatest = greatest_by(self.table, [c for c in columns if not c.startswith("_")])
            written = self._writer.apply(changes, self.table.key, stamp, greatest=greatest if self._has_rivals else ())
            total = _sum(total, written)
            if written.changed >= wanted or (self._has_rivals and written.is_nothing):
                return total  # what is left are lesser rows than those that stand
            _log.info("retry table=%s wanted=%d changed=%d", self.table.full_name, wanted, written.changed)
        raise WriteConflict(
            f"{self.table.full_name}: other writers changed the rows of this refresh {_ATTEMPTS} times in a row.",
            hint="Run it again when the table is quieter.",
        )

    def _moved(self, changes: pa.Table | DataFrame) -> pa.Table | DataFrame:
        """A difference, each insert that meets a row of its key as an update of that row.

        Such a row stood outside of the scopes when it was computed last, and has moved into them since.
        """
        columns, key = [f.name for f in self._writer.newest().schema().fields], self.table.key
        if not isinstance(changes, pa.Table):
            inserts = changes.where(f"{CHANGE} = 'insert'").select(*columns)
            met = matching(self.lake.frame(self.spark, self.table.full_name), inserts, key, "left_semi")
            moved = difference(inserts, met, key)
            return changes.where(f"{CHANGE} <> 'insert'").unionByName(moved)
        is_insert = pc.equal(changes[CHANGE], "insert")
        inserts = changes.filter(is_insert).select(columns)
        connection = duckdb_utc()
        connection.register("inserts", inserts)
        connection.register("rows", pa.table(self._writer.newest().scan()).cast(inserts.schema))
        same = " AND ".join(f'rows."{c}" IS NOT DISTINCT FROM inserts."{c}"' for c in key)
        met = connection.sql(f"SELECT rows.* FROM rows SEMI JOIN inserts ON {same}").to_arrow_table()
        moved = difference_of_tables(inserts, met.cast(inserts.schema), key)
        return pa.concat_tables([changes.filter(pc.invert(is_insert)), moved.select(changes.column_names)])

    @property
    def _has_rivals(self) -> bool:
        """Whether a row of the scopes can meet another of its key that lies outside of them."""
        return bool(self.table.latest_by) and self.registry.strategy(self.table) != "latest"

    def _input(self, declaration: Topic | Table, wanted: ScopeFilter) -> _Input:
        table = self.opened(declaration.full_name)
        bounds = wanted.input_bounds(declaration, [f.name for f in table.schema().fields])
        files = slice_of(table, bounds)
        few = self._few(files, declaration, wanted)
        if few is not None:
            # In one partition, of which Spark needs no shuffle to bring equal keys together.
            frame = self.spark.createDataFrame(few).coalesce(1)
        else:
            many = files.rows is None or files.rows > self.lake.settings.small_rows * _ROWS_IN_MEMORY
            frame = wanted.inputs(files.frame(self.spark), declaration, many=many)
            if self._counts_once(declaration):
                frame = first_of_each(frame, declaration)
        if isinstance(declaration, Topic):
            frame = payload(frame, declaration, self.table)
        return _Input(frame, files.rows if few is None else len(few), is_near=few is not None)

    def _few(self, files: Slice, declaration: Topic | Table, wanted: ScopeFilter) -> pa.Table | None:
        """The rows of an input that matter, each once, where this process finds them sooner than Spark would."""
        settings = self.lake.settings
        if settings.engine == "spark" or files.rows is None or files.rows > settings.small_rows * _ROWS_LOOKED_AT:
            return None
        schema = pa.schema(files.table.schema())
        columns = schema.names
        if isinstance(declaration, Topic):
            columns = [c for c in columns if not c.startswith("_") or c in (PARTITION, OFFSET)]
        scopes = wanted.as_table({f.name: f.type for f in schema})
        rows = files.few(wanted.input_join(declaration, schema), scopes, settings.small_rows * _ROWS_HANDED_ON, columns)
        if rows is not None and self._counts_once(declaration):
            return first_of_each_in_memory(rows, declaration)
        return rows

    def _counts_once(self, declaration: Topic | Table) -> TypeGuard[Topic]:
        """Whether records of an input that agree in their identity count as one."""
        return isinstance(declaration, Topic) and self.registry.strategy(self.table) in ("stateful", "touched")

    @property
    def _read(self) -> dict[str, int]:
        """The version of each input that the last recomputation read."""
        return {name: int(table.version()) for name, table in self._open.items()}

    def opened(self, name: str) -> DeltaTable:
        """An input, at its pinned version or as it is now."""
        if name not in self.versions:
            self._open[name] = self._inputs.setdefault(name, OpenTable(self.lake, name)).newest()
        elif name not in self._open:
            self._open[name] = self.lake.open(name, self.versions[name])
        return self._open[name]


def require_good(spark: SparkSession, table: Table, changes: pa.Table | DataFrame) -> None:
    """Refuse a difference whose new rows break the table's rules.

    Raises:
        QualityFailed: names the rules and a row that breaks them.
    """
    from quality.check import naming, split
    from quality.rules import ROW_RULES

    rules = [rule for rule in table.rules if rule.kind in ROW_RULES]
    if not rules:
        return
    frame = changes if not isinstance(changes, pa.Table) else spark.createDataFrame(changes)
    with naming(rules):
        bad = split(frame.where(f"{CHANGE} <> 'delete'"), rules)[1].limit(1).collect()
    if bad:
        row = bad[0].asDict()
        raise QualityFailed(
            f"{table.full_name}: the recomputed row { ({c: row[c] for c in table.key}) } breaks "
            f"{', '.join(row['_reasons'])}; nothing was published.",
            hint=f"Correct the function or the rules in tables/{table.domain}/{table.name}.py, then run it again.",
        )


def everything(table: Table) -> list[Scope]:
    """The scope that holds every row of the table."""
    return [Scope(tuple(... for _ in table.recompute_by), None)]


def _sum(a: Written, b: Written) -> Written:
    return Written(
        inserted=a.inserted + b.inserted,
        updated=a.updated + b.updated,
        deleted=a.deleted + b.deleted,
        files=a.files + b.files,
        version=b.version if b.version is not None else a.version,
    )
