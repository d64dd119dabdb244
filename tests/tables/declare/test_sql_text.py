"""A table's function can be a query: the stream and the batch give its rows, also when its inputs change."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests import ROOT
from tests.tables.declared import a_table, written
from twofold import sql
from twofold.infra.errors import BadDeclaration
from twofold.infra.project.settings import Settings
from twofold.tables.declare.analysis import open_call
from twofold.tables.declare.registry import load
from twofold.tables.declare.table import Strategy
from twofold.tables.refresh.derived_rows import derive
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLE = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/how-to/write-sql.md").read_text(), re.M | re.S)[0]
BY_HOUR = '''\
"""Orders by hour."""
from twofold import sql, table


@table(
    primary_key=["hour"], event_time="hour", depends_within="1 hour", closes_at="closes_at", recompute_by=[]
)
def by_hour(orders):
    text = "SELECT w.start AS hour, w.end AS closes_at, n FROM (SELECT window(ordered_at, '1 hour') AS w, count(*) AS n"
    return sql(text + " FROM {orders} GROUP BY 1)", orders=orders)
'''
TABLES = ["unpaid_orders", "by_hour"]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Three orders, of which the second is paid at the second attempt, after the stream has seen the first one."""
    folder = tmp_path_factory.mktemp("sql")
    declared = written(folder / "declared", {"shop/unpaid_orders.py": EXAMPLE, "shop/by_hour.py": BY_HOUR})
    for topic in ("orders", "payments"):
        shutil.copy(ROOT / f"demo/tables/shop/{topic}.py", declared / "shop")
    world = World(spark, Settings(home=folder / "home", shuffle_partitions=1), "shop", load(declared).require_sound())
    world.append(
        {"orders": [order("o1", "09:00"), order("o2", "09:10")], "payments": [payment("p1", "o2", "declined")]}
    )
    world.maintain(TABLES)
    world.append({"orders": [order("o3", "12:00")], "payments": [payment("p2", "o2", "accepted")]})
    world.maintain(TABLES)
    return world


def order(name: str, at: str) -> bytes:
    fields = {"buyer": {"customer": "c1"}, "product": "tea", "cents": 500, "country": "DE"}
    return json.dumps({"order_id": name, "ordered_at": f"2013-01-01T{at}:00Z", **fields}).encode()


def payment(name: str, order_id: str, outcome: str) -> bytes:
    fields = {"payment_id": name, "order_id": order_id, "outcome": outcome, "card": "x"}
    return json.dumps({"tried_at": "2013-01-01T09:15:00Z", **fields}).encode()


def test_the_example_follows_the_changes_of_both_inputs(world: World) -> None:
    assert world.registry.strategy(world.registry.find_table("unpaid_orders")) is Strategy.TOUCHED
    rows = world.rows("shop.unpaid_orders").to_pylist()
    assert {(row["order_id"], row["cents"], row["attempts"]) for row in rows} == {("o1", 500, 0), ("o3", 500, 0)}


def test_windows_of_a_query_close_on_the_stream(world: World) -> None:
    assert world.registry.strategy(world.registry.find_table("by_hour")) is Strategy.STATEFUL
    rows = world.rows("shop.by_hour").to_pylist()
    assert {(row["hour"].hour, row["n"]) for row in rows} >= {(9, 2)}


def test_the_batch_gives_the_rows_of_the_stream(world: World) -> None:
    assert [o for o in world.reconcile(TABLES, verify=True) if o.changed or o.unexplained] == []


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("SELECT id, current_timestamp AS at FROM {readings}", "current_timestamp"),
        ("SELECT id FROM {readings} WHERE 1 < (SELECT count(*) FROM {readings} WHERE rand() < 0.5)", "rand"),
    ],
)
def test_a_clock_and_chance_in_the_text_are_refused(spark: SparkSession, text: str, called: str) -> None:
    table = a_table(derive=lambda readings: sql(text, readings=readings), **OF_ID)
    with pytest.raises(BadDeclaration, match=rf"calls {called}\(\)"):
        derive(table, {"readings": spark.range(3)})


def test_a_clock_in_what_the_text_reads_is_refused(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def dated(readings: DataFrame) -> DataFrame:
        return sql("SELECT * FROM {readings}", readings=readings.withColumn("at", F.current_date()))

    with pytest.raises(BadDeclaration, match=r"calls current_date\(\)"):
        derive(a_table(derive=dated, **OF_ID), {"readings": spark.range(3)})


@pytest.mark.spark
@pytest.mark.parametrize(
    ("body", "used"),
    [("first(id)", "first"), ("max(id)", None), ("id FROM (SELECT * FROM {r} LIMIT 3) UNION SELECT id", "GlobalLimit")],
)
def test_what_only_spark_can_read_is_searched_for_order(spark: SparkSession, body: str, used: str | None) -> None:
    def unread(readings: DataFrame) -> DataFrame:
        readings.sparkSession.createDataFrame([(1,)], "n int")
        return readings.sparkSession.sql(f"SELECT {body} FROM {{r}}", r=readings)

    found = open_call(a_table(derive=unread, **OF_ID), unread(spark.range(3)))
    assert (found and found.message.partition(": ")[2]) == (
        used
        and f"uses {used} in what cannot be read, the whole function: its result can depend on the order of rows or "
        "on chance, and no key that is written proves that it does not."
    )


OF_ID: dict[str, Any] = {
    **dict.fromkeys(("primary_key", "recompute_by"), ("id",)),
    **dict.fromkeys(("event_time", "depends_within", "closes_at")),
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM {order}", "reads 'order', which is none of its inputs"),
        ("SELECT * FROM {orders} WHERE country RLIKE '[A-Z]{2}'", "reads '2', which is none of its inputs"),
        ("SELECT 1", "reads no input"),
    ],
)
def test_a_name_that_is_not_passed_is_refused(text: str, message: str) -> None:
    orders: Any = None
    with pytest.raises(BadDeclaration, match=message) as refused:
        sql(text, orders=orders)
    assert "a brace of the text itself twice" in (refused.value.hint or "")
