"""A table holds whatever its function makes of its inputs: times of any year, arrays, structs and maps, also nested.

Two histories, since rows are compared here where they are few, and by Spark where they are many: a minute.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.tables.declared import written
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VISITS = '''\
"""Visits, of which some clients know no time, and some send many words."""
from twofold import Topic

TOPIC = Topic(
    schema={"id": "long", "at": "timestamp", "words": "array<string>", "labels": "map<string,long>?"},
    event_time="at",
    message_key="id",
    dedup_keys=["id"],
)
'''
TABLE = '''\
"""Visits, as the name says."""
from twofold import F, table


@table()
def {name}(visits):
    return {rows}
'''
TABLES = {
    "by_day": 'visits.groupBy(F.to_date("at").alias("day")).agg(F.count("*").alias("n"))',
    "by_hour": 'visits.groupBy(F.date_trunc("hour", "at").alias("hour")).agg(F.max("id").alias("id"))',
    "by_words": 'visits.groupBy("words").agg(F.count("*").alias("n"))',
    "by_pair": """visits.groupBy(F.struct("words", F.year("at").alias("year")).alias("pair")).agg(
        F.count("*").alias("n")
    )""",
    "flagged": """visits.groupBy("id").agg(F.max(F.size("words")).alias("n")).select(
        "id", F.when(F.col("n") > 1, F.struct(F.lit(1).alias("one"))).alias("flag")
    )""",
    "labelled": """visits.groupBy("id").agg(F.max_by("labels", "at").alias("labels")).select(
        "id", "labels", F.array(F.struct("labels")).alias("deep")
    )""",
}
GO, OLD, NOW = "0001-01-01T00:00:00Z", "1500-02-28T10:30:00Z", "2013-01-01T10:30:00Z"
FIRST = [
    {"id": 1, "at": GO, "words": [], "labels": {"x": 1}},
    {"id": 2, "at": OLD, "words": ["a"], "labels": None},
    {"id": 3, "at": NOW, "words": ["a", "b"], "labels": {}},
]
THEN = [
    {"id": 4, "at": GO, "words": ["a"], "labels": {"y": 4}},
    {"id": 5, "at": OLD, "words": ["a", "b"], "labels": {"y": 5}},
    {"id": 3, "at": "2013-01-01T10:45:00Z", "words": ["a"], "labels": {"z": 3, "x": 2}},
]


@pytest.fixture(
    scope="module",
    params=[pytest.param(50_000, id="in this process"), pytest.param(0, id="by Spark", marks=pytest.mark.prove)],
)
def world(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A plant whose tables took in both micro-batches, one by one, and whose reconcile found nothing to correct."""
    folder = tmp_path_factory.mktemp("unusual")
    files = {f"plant/{name}.py": TABLE.format(name=name, rows=text) for name, text in TABLES.items()}
    registry = load(written(folder / "declared", {"plant/visits.py": VISITS, **files}))
    assert not registry.faults
    settings = Settings(home=folder / "region=eu", shuffle_partitions=1, small_rows=request.param)
    world = World(spark, settings, "plant", registry)
    for visits in (FIRST, THEN):
        world.append({"visits": [json.dumps(visit).encode() for visit in visits]})
        world.maintain(world.all_tables)
    results = world.reconcile(world.all_tables, verify=True)
    assert [(r.table, r.changed, r.unexplained) for r in results] == [(r.table, 0, 0) for r in results]
    return world


def rows(world: World, name: str) -> list[tuple[Any, ...]]:
    return sorted(zip(*world.rows(f"plant.{name}").to_pydict().values(), strict=True), key=repr)


def test_times_of_any_year_make_groups(world: World) -> None:
    assert rows(world, "by_day") == [(date(1, 1, 1), 2), (date(1500, 2, 28), 2), (date(2013, 1, 1), 2)]
    assert rows(world, "by_hour") == [
        (datetime(1, 1, 1, tzinfo=UTC), 4), (datetime(1500, 2, 28, 10, tzinfo=UTC), 5),
        (datetime(2013, 1, 1, 10, tzinfo=UTC), 3),
    ]  # fmt: skip


def test_arrays_and_structs_make_groups(world: World) -> None:
    assert rows(world, "by_words") == [(["a", "b"], 2), (["a"], 3), ([], 1)]
    pairs = {(*pair["words"], pair["year"]): n for pair, n in rows(world, "by_pair")}
    assert pairs == {
        (1,): 1, ("a", 1500): 1, ("a", "b", 2013): 1, ("a", 1): 1, ("a", "b", 1500): 1, ("a", 2013): 1,
    }  # fmt: skip


def test_a_struct_may_be_null_though_none_of_its_fields_is(world: World) -> None:
    assert rows(world, "flagged") == [(1, None), (2, None), (3, {"one": 1}), (4, None), (5, {"one": 1})]


def test_maps_are_kept_wherever_they_are(world: World) -> None:
    labels: dict[int, Any] = {1: [("x", 1)], 2: None, 3: [("x", 2), ("z", 3)], 4: [("y", 4)], 5: [("y", 5)]}
    found = {id_: (value and sorted(value), deep) for id_, value, deep in rows(world, "labelled")}
    assert {id_: value for id_, (value, _) in found.items()} == labels
    deep = {id_: inner[0]["labels"] and sorted(inner[0]["labels"]) for id_, (_, inner) in found.items()}
    assert deep == labels
    assert pa.types.is_list(world.rows("plant.labelled").schema.field("deep").type)
