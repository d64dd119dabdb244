"""Derives a table's rows: deduplicates, selects columns, applies the function, keeps one row per key.

The stream, the batch, a table as of the past and the schema of a new one all take these steps, written once here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from twofold.infra.delta.file_pruning import prune_files
from twofold.infra.errors import BadDeclaration
from twofold.infra.rows.rows import R, are_here, column_names, dialect_of, run_sql, with_null
from twofold.tables.declare.analysis import impure_call, rows_of, wrong_columns
from twofold.tables.declare.inference import RECORD
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.declare.table import Strategy, Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.row_diff import matching, same_key
from twofold_algebra.sql.names import DUCKDB, SPARK

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from twofold.infra.delta.lake import Lake
    from twofold.infra.rows.rows import Rows
    from twofold.tables.declare.registry import Registry
    from twofold.tables.refresh.scope_predicates import ScopeFilter


_WATERMARK = "spark.watermarkDelayMs"
"""The metadata by which Spark knows the column that bears the watermark."""
_COUNTS_UNTIL = "_counts_until"
_PLACE = (PARTITION, OFFSET)


def derive(table: Table, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Computes the table's rows for these inputs.

    Args:
        inputs: by parameter name: columns as declared by the topic, or the rows of the table read; streaming or not.

    Raises:
        BadDeclaration: the function fails, its result lacks a declared column, or it is not a pure function.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    try:
        rows = rows_of(table, inputs)
    except (PySparkException, Py4JJavaError) as error:  # the latter where its analyser itself has failed
        raise BadDeclaration(
            f"tables/{table.domain}/{table.name}.py: {table.derive.__name__} fails: {_first_line(error)}",
            hint="Its inputs have " + "; ".join(f"{n}: {', '.join(f.columns)}" for n, f in inputs.items()) + ".",
        ) from error
    if not isinstance(rows, DataFrame):
        raise BadDeclaration(
            f"tables/{table.domain}/{table.name}.py: {table.derive.__name__} returned {type(rows).__name__}; "
            "expected a DataFrame."
        )
    for mistake in wrong_columns(table, rows.columns):
        raise mistake
    if impure := impure_call(table, rows):
        raise impure
    return _with_nullable_parts(rows)


def _with_nullable_parts(rows: DataFrame) -> DataFrame:
    """Makes the fields of structs nullable, as they are in Arrow if the struct itself is."""
    never_null = [field.name for field in rows.schema if '"nullable":false' in field.dataType.json()]
    if not never_null:
        return rows
    cast = {f.name: rows[SPARK.name(f.name)].cast(with_null(f.dataType)) for f in rows.schema if f.name in never_null}
    return rows.withColumns(cast)


def derive_over(registry: Registry, table: Table, frame_of: Callable[[Topic | Table], DataFrame]) -> DataFrame:
    """Computes the table's rows over these frames of its inputs. Raises as `derive`."""
    strategy, sources = registry.strategy(table), zip(table.inputs, registry.upstream(table), strict=True)
    return derive(table, {name: input_of(source, frame_of(source), table, strategy) for name, source in sources})


def input_of(
    source: Topic | Table,
    frame: DataFrame,
    table: Table,
    strategy: Strategy,
    of: tuple[ScopeFilter, DeltaTable] | None = None,
) -> DataFrame:
    """Prepares the rows of one input for the table's function; a stream of events must have a watermark already.

    Args:
        of: what they are the rows of: some scopes, and the input; None: all rows.
    """
    if isinstance(source, Table):
        return frame
    if strategy.removes_repeats:
        agreeing = repeats_agree_in(source, table)
        frame = first_of_each(frame, agreeing) if of is None else cast("DataFrame", first_of_all(frame, source, *of))
    return payload(frame, source, table)


def few_of(source: Topic | Table, rows: DataFrame, table: Table) -> DataFrame:
    """Prepares few rows of one input, each record once already, for the table's function."""
    rows = rows.coalesce(1)  # of one partition, Spark needs no shuffle to bring equal keys together
    return payload(rows, source, table) if isinstance(source, Topic) else rows


def repeats_agree_in(topic: Topic, table: Table) -> list[str]:
    """Returns the columns in which a repeated record equals the first one, those of `recompute_by` included.

    An output row depends on input rows with its values there alone, so that a record with other values cannot stand in
    for one with these. Only those in which what is of a person ends are left out: a copy has none once that person is
    forgotten.
    """
    read = table.scope_reads(topic) - {topic.event_time} - table.ending_reads(topic)
    by = [c for c, type_ in topic.columns.items() if c in read and not _has_map(type_.arrow)]
    return list(dict.fromkeys([*topic.same_record, *by]))


def _has_map(kind: pa.DataType) -> bool:
    """Whether Spark cannot compare values of the type."""
    return "map<" in str(kind)


def declared_columns(spark: SparkSession, lake: Lake, registry: Registry, table: Table) -> StructType:
    """Returns the schema of the function's result, without reading a row."""
    return derive_over(registry, table, lambda source: lake.frame(spark, source.full_name)).schema


def one_of_each_key(rows: DataFrame, table: Table, strategy: Strategy, *, closed: str | None = None) -> DataFrame:
    """Keeps one row of each key among those that the table's function returned.

    Args:
        closed: a column that says which rows are closed: of a key that has some, one of these stays. None: they are all
            closed, or all the stream's.
    """
    if table.sequence_by:
        return latest_of_each(rows, table, [closed] if closed else [])
    return rows.dropDuplicates(list(table.primary_key)) if strategy is Strategy.APPEND else rows


def payload(frame: DataFrame, topic: Topic, table: Table) -> DataFrame:
    """Selects events as a declaration sees them: only declared columns, without heartbeats and marks.

    With `table.lineage_columns` also the place of each in the log, as the column `record`. Call it on a stream after
    the watermark, which heartbeats move.
    """
    from pyspark.sql import functions as F

    frame = frame.where(topic.row_condition)
    columns = [F.col(column) for column in frame.columns if not column.startswith("_")]
    if table.lineage_columns:
        known = F.col(OFFSET).isNotNull()  # always; what is never null by its type could not be null in an outer join
        parts = {"topic": F.lit(topic.full_name), "partition": F.col(PARTITION), "offset": F.col(OFFSET)}
        place = F.struct(*(F.when(known, value).alias(name) for name, value in parts.items()))
        columns.append(F.when(known, place).alias(RECORD))
    return frame.select(columns)


def first_of_each(rows: R, agreeing: Sequence[str]) -> R:
    """Removes repeated records: of those that agree in these columns the first in the log stays."""
    by = dialect_of(rows)
    order = ", ".join(f"{by.name(column)} NULLS FIRST" for column in _PLACE)
    nth = f"row_number() OVER (PARTITION BY {by.names(agreeing)} ORDER BY {order}) AS _nth"
    numbered = f"SELECT *, {nth} FROM rows"
    first: Rows = run_sql(f"SELECT {by.names(column_names(rows))} FROM ({numbered}) WHERE _nth = 1", rows=rows)
    return cast("R", first.cast(rows.schema) if are_here(first) and are_here(rows) else first)


def first_of_all(rows: R, topic: Topic, wanted: ScopeFilter, events: DeltaTable, most: int = 0) -> R | None:
    """Removes repeated records from those of some scopes, also those whose first one is in other scopes.

    Args:
        events: the table that the rows are of.
        most: copies that may be read into this process, if the rows are here; None is returned if there are more.
    """
    agreeing = repeats_agree_in(topic, wanted.table)
    if not (ending := wanted.table.ending_reads(topic)):
        return first_of_each(rows, agreeing)
    others = pa.schema([field for field in pa.schema(events.schema()) if field.name not in ending])
    files = prune_files(events, wanted.input_condition(topic, others.names).bounds())
    copies: Rows | None
    if are_here(rows):
        clauses = f"SEMI JOIN scopes ON {same_key(DUCKDB, agreeing, 'rows', 'scopes')}"
        copies = files.read_if_small(clauses, rows.select(agreeing), most, [*agreeing, *_PLACE])
    else:
        copies = wanted.inputs(files.frame(rows.sparkSession), topic, others, each=False).select(*agreeing, *_PLACE)
    return None if copies is None else matching(rows, first_of_each(copies, agreeing), _PLACE, "SEMI")


def first_of_each_on_stream(
    frame: DataFrame, topic: Topic, same: Sequence[str], *, delay_ms: int, open_ms: int
) -> DataFrame:
    """Removes repeated records on a stream, which remembers one until the watermark is `open_ms` past its event time.

    Spark's deduplication drops late records, and forgets earlier ones, by the column that bears the watermark. With the
    event time as that column it drops records of windows that are still open. Here another column bears the watermark:
    the time at which the last row closes that the record can count in.

    Args:
        delay_ms: of the watermark.
        open_ms: from a record's event time to the closing of the last row that it can count in, at most.
    """
    from pyspark.sql import functions as F

    time, others = topic.event_time, [column for column in frame.columns if column != topic.event_time]
    counts_until = F.col(time) + F.expr(f"INTERVAL {open_ms} MILLISECONDS")
    # Copies of a record differ in the corrected time, in each by the bound at most.
    apart_ms = 0 if topic.clock is None else 2 * topic.clock.bound_ms
    marked = frame.select(
        *others,
        F.col(time).alias(time, metadata={"watermark": "of another column"}),  # Spark drops metadata that are empty
        counts_until.alias(_COUNTS_UNTIL, metadata={_WATERMARK: delay_ms + apart_ms}),
    )
    if topic.clock is None:
        once = marked.dropDuplicates([*(c for c in same if c != time), _COUNTS_UNTIL])
    else:
        once = marked.dropDuplicatesWithinWatermark(list(same))
    return once.select(*others, F.col(time).alias(time, metadata={_WATERMARK: delay_ms}))


def latest_of_each(rows: DataFrame, table: Table, before: Sequence[str] = ()) -> DataFrame:
    """Keeps the row of each key that is greatest in `before`, then in `version_columns`, nulls lowest."""
    from pyspark.sql import functions as F

    version = [*before, *version_columns(table, [c for c in rows.columns if c not in before])]
    greatest = rows.groupBy(*table.primary_key).agg(F.max(F.struct(*version)).alias("_greatest"))
    return greatest.select(*table.primary_key, "_greatest.*").select(*rows.columns)


def require_closing(table: Table, rows: pa.Table) -> None:
    """Refuses rows that stay open longer than `depends_within`: late records would be forgotten before.

    Raises:
        BadDeclaration: names such a row.
    """
    if not (table.closes_at and table.event_time and table.depends_within_ms is not None and len(rows)):
        return
    import pyarrow as pa
    import pyarrow.compute as pc

    dated, closes = (rows[c].cast(pa.timestamp("us")).cast(pa.int64()) for c in (table.event_time, table.closes_at))
    open_us = pc.subtract(closes, dated)
    longest = pc.max(open_us).as_py()
    if longest is not None and longest > table.depends_within_ms * 1_000:
        row = rows.slice(pc.index(open_us, longest).as_py(), 1).to_pylist()[0]
        raise BadDeclaration(
            f"tables/{table.domain}/{table.name}.py: the row { ({c: row[c] for c in table.primary_key}) } closes "
            f"{timedelta(microseconds=longest)} after its event time; expected at most depends_within, "
            f"{table.depends_within}.",
            hint="closes_at is the end of what a row is made from: lengthen depends_within, or let the row close "
            "earlier.",
        )


def version_columns(table: Table, columns: Sequence[str]) -> list[str]:
    """Returns `sequence_by`, then all other columns, so that any two different rows of one key have an order.

    Columns that name the records of a row come last: rows that differ in these alone are the same.
    """
    records = table.lineage_columns or ()
    rest = [c for c in columns if c not in table.primary_key and c not in table.sequence_by and c not in records]
    return [*(c for c in table.sequence_by if c not in table.primary_key), *rest, *(c for c in columns if c in records)]


def greatest_by(table: Table, columns: Sequence[str]) -> list[str]:
    """Returns the columns that decide which of two rows of one key stays."""
    return [c for c in version_columns(table, columns) if c not in (table.lineage_columns or ())]


def _first_line(error: Exception) -> str:
    cause = getattr(error, "java_exception", None)
    return str(error if cause is None else cause.getMessage()).strip().split("\n")[0]
