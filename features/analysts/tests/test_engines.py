"""Each kind of table is read by Spark, DuckDB, delta-rs and polars with equal rows, corrected ones among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
import pytest

from tests.plant import DAYS_FILE, hour, plant, reading
from twofold.features.analysts.analytics_file import write_analytics
from twofold.features.analysts.table_views import connect
from twofold.infra.project.settings import Settings
from twofold.tables.declare.table import Strategy
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "plant.readings"
SCALED_FILE = '''\
"""Readings in millivolts."""
from twofold import F, table


@table()
def scaled(readings):
    return readings.select("sensor", "read_at", (F.col("value") * 1000).alias("millivolts"))
'''
ROWS = {"plant.readings": 6, "plant.readings_quarantine": 1, "plant.hours": 3, "plant.days": 2, "plant.newest": 2}
ROWS |= {"plant.scaled": 6, "plant.kept": 3, "ledger.corrections": 2}


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A table of each strategy; reconcile has corrected hour 0 of sensor a from 3.0 to 7.0, and what reads it."""
    folder = tmp_path_factory.mktemp("engines")
    registry = plant(folder / "declared", days=DAYS_FILE, scaled=SCALED_FILE)
    world = World(spark, Settings(home=folder / "home", shuffle_partitions=1), "plant", registry)
    world.append({TOPIC: [reading("a", 0.1, 1.0), reading("a", 0.2, 2.0), reading("b", 0.5, 5.0), b"no JSON"]})
    world.append({TOPIC: [reading("a", 9, 1.0), reading("b", 9, None)]})
    world.maintain(world.all_tables)
    world.append({TOPIC: [reading("a", 0.3, 4.0)]})
    world.maintain(world.all_tables)
    world.reconcile(world.all_tables)
    return world


def by_spark(world: World, name: str) -> pa.Table:
    return world.lake.frame(world.spark, name).toArrow()


def by_duckdb(world: World, name: str) -> pa.Table:
    with connect() as connection:
        return connection.execute("FROM delta_scan(?)", [world.lake.uri(name)]).to_arrow_table()


def by_delta_rs(world: World, name: str) -> pa.Table:
    return pa.table(world.lake.open(name).scan())


def by_polars(world: World, name: str) -> pa.Table:
    return polars.read_delta(world.lake.uri(name)).to_arrow()


@pytest.mark.parametrize("name", ROWS)
def test_four_engines_read_the_same_rows(world: World, name: str) -> None:
    engines: list[Callable[[World, str], pa.Table]] = [by_spark, by_duckdb, by_delta_rs, by_polars]
    found = {engine.__name__: sorted(map(repr, map(plain, engine(world, name).to_pylist()))) for engine in engines}
    assert {engine: len(rows) for engine, rows in found.items()} == dict.fromkeys(found, ROWS[name])
    assert [engine for engine, rows in found.items() if rows != found["by_duckdb"]] == []


def test_the_tables_are_of_every_strategy(world: World) -> None:
    tables = world.registry.tables
    assert {world.registry.strategy(tables[name]) for name in ROWS if name in tables} == set(Strategy)


def test_a_view_shows_which_rows_reconcile_has_corrected(world: World) -> None:
    with connect(write_analytics(world.settings, world.registry), read_only=True) as analytics:
        columns = "sensor, hour, total, _corrections, _cause, _before ->> 'total'"
        rows = analytics.execute(f"SELECT {columns} FROM plant.hours_with_corrections ORDER BY ALL").fetchall()
        days = analytics.execute("SELECT sensor, total, _corrections FROM plant.days_with_corrections").fetchall()
        descriptions = analytics.execute("SELECT comment FROM duckdb_views() WHERE view_name = 'hours'").fetchall()
    assert rows == [
        ("a", hour(0), 7.0, 1, "late", "3.0"),
        ("a", hour(9), 1.0, 0, None, None),
        ("b", hour(0), 5.0, 0, None, None),
    ]
    assert sorted(days)[0][:2] == ("a", 8.0)
    assert ("The sum of each sensor's readings by hour.",) in descriptions


def test_a_table_is_read_as_of_an_offset(world: World) -> None:
    """Offset 5 was in with the first commit of the stream; of the late offset 6 only the correction knows."""
    reached = "version_after('plant.hours', 'plant.readings', version_with('plant.readings', 0, {offset}))"
    with connect(write_analytics(world.settings, world.registry), read_only=True) as analytics:
        found = [analytics.execute(f"SELECT {reached.format(offset=offset)}").fetchone() for offset in (0, 5, 6)]
        analytics.execute(f"SET VARIABLE v = {reached.format(offset=5)}")
        query = "SELECT sensor, hour, total FROM at_version('plant.hours', getvariable('v')) ORDER BY ALL"
        rows = analytics.execute(query).fetchall()
    assert found == [(1,), (1,), (None,)]
    assert rows == [("a", hour(0), 3.0), ("a", hour(9), 1.0), ("b", hour(0), 5.0)]


def plain(value: Any) -> Any:
    """The value as all engines mean it: times in UTC, names of fields in order."""
    if isinstance(value, Mapping):
        return {name: plain(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.astimezone(UTC) if isinstance(value, datetime) else value
