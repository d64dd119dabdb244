"""Assertions about a table: its rows for given rows, and that stream and batch agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twofold.infra.delta.lake import QUARANTINE
from twofold.infra.duckdb_session import duckdb_utc
from twofold.infra.errors import BadArgument
from twofold.tables.declare.analysis import empty_input, rows_of
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.table import Draft, Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.derived_rows import derive, one_of_each_key
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoder
from twofold.testing.sample_records import SOME, Faults, records_of
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from twofold.infra.project.settings import Settings

Row = Mapping[str, Any]
PARTS = 8


def assert_rows(
    spark: SparkSession,
    table: Draft | str,
    *,
    gives: Sequence[Row] | None = None,
    gives_sql: str = "",
    registry: Registry | None = None,
    **inputs: Sequence[Row],
) -> None:
    """Asserts that the table's function makes exactly these rows of the rows given.

    Args:
        table: the function under `@table`, or a table's full or bare name.
        gives: the expected rows in any order. Columns that none of them names are not compared.
        gives_sql: a query of DuckDB over the inputs, by their names, whose rows they should be, too.
        registry: where it is declared; None: under tables/.
        inputs: input -> its rows. A column that is left out is null; a time is a `datetime`, or text in UTC:
            "2013-01-01T10:00". Repeated records are not removed: `assert_parity` sends some.

    Raises:
        AssertionError: names each row that differs, by its key, and what differs in it.
        BadArgument: an input that the table does not read, a column that the input has not, or nothing is expected.
    """
    if gives is None and not gives_sql:
        raise BadArgument("Nothing is expected of the table.", hint="Give rows, gives=[...], or a query, gives_sql=...")
    registry = registry or load()
    name = table if isinstance(table, str) else ".".join(table.derive.__module__.split(".")[-2:])
    declared = registry.find_table(name)
    if foreign := sorted(set(inputs) - set(declared.inputs)):
        raise BadArgument(f"{name} does not read {', '.join(foreign)}.", hint=f"It reads {', '.join(declared.inputs)}.")
    frames = {}
    for source, empty in _empty_inputs(spark, registry, declared).items():
        schema = _with_nulls(empty.schema)
        given = [_converted(row, schema, source) for row in inputs.get(source, ())]
        frames[source] = spark.createDataFrame(given, schema)
    rows = one_of_each_key(derive(declared, frames), declared, registry.strategy(declared))
    computed = rows.toArrow().to_pylist()
    if gives is not None:
        _require_equal(declared, computed, [_utc(row) for row in gives])
    if gives_sql:
        _require_equal(declared, computed, _by_duckdb(gives_sql, frames))


def assert_events(topic: str, records: Sequence[bytes], *, registry: Registry | None = None) -> None:
    """Asserts that each record becomes an event of the topic.

    Raises:
        AssertionError: names the records that would be quarantined, and why.
    """
    declared = (registry or load()).find_topic(topic)
    rows = [{"partition": 0, "offset": n, "value": value} for n, value in enumerate(records)]
    decoded = Decoder(declared).decode(pa.Table.from_pylist(rows, schema=RAW_SCHEMA), None)
    refused = [f"{row['value']!r}: {'; '.join(row['reasons'])}" for row in decoded.rejected.to_pylist()]
    if refused:
        raise AssertionError("\n".join([f"{declared.full_name} would quarantine:", *refused]))


def _by_duckdb(query: str, inputs: Mapping[str, DataFrame]) -> list[Row]:
    connection = duckdb_utc()
    for name, frame in inputs.items():
        connection.register(name, frame.toArrow())
    rows: list[Row] = connection.sql(query).to_arrow_table().to_pylist()
    return rows


def _empty_inputs(spark: SparkSession, registry: Registry, table: Table) -> dict[str, DataFrame]:
    """Returns each parameter of the table's function with that input, without rows."""
    frames = {}
    for name, source in zip(table.inputs, registry.upstream(table), strict=True):
        if isinstance(source, Topic):
            frames[name] = empty_input(spark, source, table)
        else:
            frames[name] = spark.createDataFrame([], rows_of(source, _empty_inputs(spark, registry, source)).schema)
    return frames


def assert_parity(
    spark: SparkSession,
    settings: Settings,
    *tables: str,
    registry: Registry | None = None,
    records: Mapping[str, Sequence[bytes]] | None = None,
    faults: Faults = SOME,
) -> World:
    """Asserts that, after reconcile, every closed row equals its recomputation, and that a second one changes nothing.

    The records are ingested in eight micro-batches with a restart in the middle. They are made from the schemas and
    rules of the topics that the tables read.

    Args:
        tables: full or bare names, of one domain; those that they read are computed, too.
        registry: where they are declared; None: under tables/.
        records: topic -> its records, instead.
        faults: how many of the records that are made are late, repeated and corrupt.

    Returns:
        The world as it is then.

    Raises:
        AssertionError: names the table and the rows that differ.
    """
    registry = registry or load()
    domain = registry.find_table(tables[0]).domain
    world = World(spark, replace(settings, max_files=1), domain, registry)
    wanted = world.with_inputs(tables)
    topics = world.topics_of(wanted)
    for cover in (topic.cover for topic in topics if topic.cover):
        cover.prepare(settings)
    sent = records or {topic.full_name: records_of(topic, faults=faults) for topic in topics}
    for number, part in enumerate(_parts(sent)):
        world.append(part)
        if number in (3, 7):
            world.maintain(wanted)
    first = world.reconcile(wanted, verify=True)
    for table in tables:
        if not world.lake.rows(registry.find_table(table).full_name):
            raise AssertionError(_why_empty(world, table, topics))
    unexplained = [outcome for outcome in first if outcome.unexplained]
    assert not unexplained, "\n".join(f"{o.table}: {d}" for o in unexplained for d in o.differences[:5])
    changed = [outcome for outcome in world.reconcile(wanted) if outcome.changed]
    assert not changed, f"a second reconcile changed {', '.join(f'{o.table}: {o.changed} rows' for o in changed)}"
    return world


def _why_empty(world: World, table: str, topics: Iterable[Topic]) -> str:
    refused = {topic.full_name: world.rows(f"{topic.full_name}{QUARANTINE}")["reasons"].to_pylist() for topic in topics}
    reasons = [
        f"{name} refused {len(each)} records, the first: {'; '.join(each[0])}" for name, each in refused.items() if each
    ]
    return "\n".join([f"{table} stayed empty", *reasons])


def _parts(records: Mapping[str, Sequence[bytes]]) -> list[dict[str, list[bytes]]]:
    """Returns the records of each micro-batch, by topic."""
    parts: list[dict[str, list[bytes]]] = [{} for _ in range(PARTS)]
    for name, values in records.items():
        for number, value in enumerate(values):
            parts[number * PARTS // len(values)].setdefault(name, []).append(value)
    return parts


def _with_nulls(schema: StructType) -> StructType:
    """Returns the schema without NOT NULL: a test need not name columns that do not matter to it."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, field.dataType) for field in schema.fields])


def _converted(row: Row, schema: StructType, source: str) -> tuple[Any, ...]:
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if foreign := sorted(set(row) - set(kinds)):
        raise BadArgument(f"{source} has no column {', '.join(foreign)}.", hint=f"It has {', '.join(kinds)}.")
    return tuple(_value(row.get(column), kind) for column, kind in kinds.items())


def _value(value: Any, kind: str) -> Any:
    if kind == "timestamp":
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
    return date.fromisoformat(value) if kind == "date" and isinstance(value, str) else value


def _utc(row: Row) -> dict[str, Any]:
    return {
        column: value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
        for column, value in row.items()
    }


def _require_equal(table: Table, found: Sequence[Row], expected: Sequence[Row]) -> None:
    columns = list(dict.fromkeys(column for row in expected for column in row)) or list(table.primary_key)
    key = [column for column in table.primary_key if column in columns] or columns
    left, said = [dict(row) for row in found], []
    for wanted in expected:
        same_key = [row for row in left if all(_equal(row.get(c), wanted.get(c)) for c in key)]
        if not same_key:
            said.append(f"missing: {_text(wanted, columns)}")
            continue
        nearest = min(same_key, key=lambda row: sum(not _equal(row.get(c), wanted.get(c)) for c in columns))
        left.remove(nearest)
        differing = [c for c in columns if not _equal(nearest.get(c), wanted.get(c))]
        if differing:
            facts = ", ".join(f"{c} is {_shown(nearest.get(c))}, expected {_shown(wanted.get(c))}" for c in differing)
            said.append(f"differs: {_text(nearest, key)}: {facts}")
    said += [f"not expected: {_text(row, columns)}" for row in left]
    if said:
        raise AssertionError("\n".join([f"{table.full_name} gives other rows:", *said]))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(other, str) and isinstance(one, datetime | date):
        other = _value(other, "timestamp" if isinstance(one, datetime) else "date")
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def _text(row: Row, columns: Sequence[str]) -> str:
    return " ".join(f"{column}={_shown(row.get(column))}" for column in columns)


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}"
    return str(value) if isinstance(value, date) else repr(value)
