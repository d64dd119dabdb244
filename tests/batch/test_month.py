"""A month of real flights, late, repeated and broken: every table equals DuckDB's answer from the source files."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import duckdb
import pytest
from deltalake import DeltaTable

from tests.rewrites import backfill
from twofold.demo.traffic.expected import expected_tables
from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.producer import messages
from twofold.demo.traffic.table_diff import TableComparison, compare
from twofold.infra.instants import Interval, epoch_ms, from_epoch_ms
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.prove, pytest.mark.spark]

START, END, TAIL_END = date(2013, 1, 1), date(2013, 2, 1), date(2013, 2, 4)
MICRO_BATCHES = 4
TABLES = [name for name in expected_tables.KEYS if name.startswith("flights.")]


@pytest.fixture(scope="module")
def month(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """January and three days more through ingest, the streams, a restart, and reconcile."""
    home = tmp_path_factory.mktemp("month")
    world = World(spark, Settings(home=home, shuffle_partitions=1, max_files=1), "flights")
    topics = {t.full_name: t for t in world.registry.domain_topics("flights")}
    sent = list(messages("flights", START, TAIL_END, topics, FaultInjection(hours_share=0.02)))
    for number in world.feed(sent, MICRO_BATCHES):
        if number in (MICRO_BATCHES // 2 - 1, MICRO_BATCHES - 1):
            world.maintain(world.all_tables)
    return world


def judged(world: World, name: str) -> TableComparison:
    """What the table holds against what it should hold by the source files, of rows that are closed."""
    watermarks = [world.watermark_ms("delays_by_hour"), world.watermark_ms("flights")]
    before = from_epoch_ms(min(ms for ms in watermarks if ms is not None))
    assert before > datetime(2013, 2, 1, tzinfo=UTC), "the tail closes the month"
    weather = name == "flights.airport_weather"
    expected = expected_tables.expected(name, START, TAIL_END, None if weather else before)
    live = world.rows(name)
    if not weather:
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("live", live)
        live = connection.sql(f"SELECT * FROM live WHERE {expected_tables.is_final(name, before)}").to_arrow_table()
    approximate = world.registry.find_table(name).tolerances
    exact = live.select(expected.column_names).cast(expected.schema)
    return compare(expected, exact, expected_tables.KEYS[name], approximate)


def test_the_month_equals_the_source_files_once_it_is_reconciled(month: World) -> None:
    """A month goes through all tables; each, corrected, is compared with an engine that knows nothing of ours."""
    wrong_before = {name: not judged(month, name).equal for name in TABLES}
    assert wrong_before["flights.delays_by_hour"], "no record came too late: this test would prove nothing"
    outcomes = month.reconcile(month.all_tables)
    assert sum(o.changed for o in outcomes if o.table == "flights.delays_by_hour") > 0
    for name in TABLES:
        found = judged(month, name)
        assert found.equal, (name, found.missing, found.extra, found.changed)
        assert found.rows > {"flights.airport_weather": 0, "flights.missed_turnarounds": 150}.get(name, 400)


def test_a_second_reconcile_writes_nothing(month: World) -> None:
    month.reconcile(month.all_tables)
    before = {name: month.lake.version(name) for name in month.lake.names()}
    outcomes = month.reconcile(month.all_tables)
    assert [(o.changed, o.files_written) for o in outcomes] == [(0, 0)] * len(outcomes)
    assert {name: month.lake.version(name) for name in month.lake.names()} == before


def test_a_damaged_row_is_unexplained_until_a_backfill_puts_it_right_once(month: World, spark: SparkSession) -> None:
    name = "flights.delays_by_hour"
    month.reconcile(month.all_tables)
    DeltaTable(month.lake.uri(name)).update(
        updates={"flights": "flights + 1"}, predicate="origin = 'JFK' AND hour = '2013-01-15T20:00:00Z'"
    )
    assert [o.unexplained for o in month.reconcile([name], verify=True)] == [1]
    table = month.registry.find_table(name)
    start, end = (epoch_ms(datetime(2013, 1, day, tzinfo=UTC)) for day in (15, 16))
    assert start is not None
    assert end is not None
    platform = Platform(spark, month.lake, month.registry)
    first = backfill(platform, table, Interval(start, end))
    assert (first.inserted, first.updated, first.deleted) == (0, 1, 0)
    version = month.lake.version(name)
    second = backfill(platform, table, Interval(start, end))
    assert (second.changed, second.files_written, month.lake.version(name)) == (0, 0, version)
    assert [o.unexplained for o in month.reconcile([name], verify=True)] == [0]
    [correction] = [c for c in month.rows("ledger.corrections").to_pylist() if c["cause"] == "backfill"]
    assert (correction["table"], correction["change"], correction["version"]) == (name, "update", first.version_after)
