"""The year of real flights, 2 % of them hours late: every table equals DuckDB's answer from the source files."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.flights_oracle import judged
from tests.harness.tiers import this_run
from twofold.demo.traffic.expected import expected_tables
from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.producer import messages
from twofold.infra.instants import from_epoch_ms
from twofold.infra.project.settings import Settings
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(5_400),
    pytest.mark.fuzz,
]

MONTHS = this_run.months
START = date(2013, 1, 1)
END = date(2013 + MONTHS // 12, MONTHS % 12 + 1, 1)


@pytest.fixture(scope="module")
def year(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two micro-batches of ingest a month, through streams that restart after each, and through reconcile."""
    world = World(spark, Settings(home=tmp_path_factory.mktemp("year"), shuffle_partitions=1, max_files=1), "flights")
    topics = {t.full_name: t for t in world.registry.domain_topics("flights")}
    sent = list(messages("flights", START, END, topics, FaultInjection(hours_share=0.02)))
    for _ in world.feed(sent, parts=2 * MONTHS):
        world.maintain(world.all_tables)
    return world


def test_the_year_equals_the_source_files_once_it_is_reconciled(year: World) -> None:
    outcomes = year.reconcile(year.all_tables, verify=True)
    assert [o for o in outcomes if o.unexplained] == []
    assert sum(o.changed for o in outcomes) > 0, "no record came too late: this test would prove nothing"
    names = [table.full_name for table in year.registry.in_order("flights")]
    before = from_epoch_ms(min(ms for name in names if (ms := year.watermark_ms(name))))
    wrong = {}
    for name in names:
        found = judged(year, name, expected_tables.expected(name, START, END, before), before)
        assert found.rows > 0, name
        if not found.equal:
            wrong[name] = (found.missing, found.extra, found.changed, found.examples.slice(0, 2).to_pylist())
    assert wrong == {}


def test_a_second_reconcile_of_the_year_changes_no_row_and_writes_no_file(year: World) -> None:
    year.reconcile(year.all_tables)
    before = {name: year.lake.version(name) for name in year.lake.names()}
    outcomes = year.reconcile(year.all_tables)
    assert [(o.changed, o.files_written) for o in outcomes] == [(0, 0)] * len(outcomes)
    assert {name: year.lake.version(name) for name in year.lake.names()} == before
