"""A table follows each change of its inputs, whatever its scope is made of: nothing, capitals, words of SQL, floats."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.tables.declared import written
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VISITS = '''\
"""Visits, as a client of any habit names its fields."""
from twofold import Topic

TOPIC = Topic(
    schema={
        "id": "long",
        "at": "timestamp",
        "Zone": "string?",
        "order": "long?",
        "null": "string?",
        "weight": "double?",
        "user": "decimal(20,0)",
        "repo": "struct<name: string?>",
    },
    event_time="at",
    message_key="id",
    dedup_keys=["id"],
)
'''
NEWEST = '''\
"""The newest state of each visit; a weight below nothing is no number."""
from twofold import F, table


@table(primary_key=["id"], sequence_by=["at"], recompute_by=["id"])
def newest(visits):
    weight = F.when(F.col("weight") < 0, F.lit(float("nan"))).otherwise(F.col("weight"))
    return visits.withColumn("weight", weight)
'''
TABLES = {
    "how_many": '''\
"""How many visits there are, in one row."""
from twofold import F, table


@table(primary_key=["one"], recompute_by=[])
def how_many(newest):
    return newest.agg(F.count("*").alias("n")).withColumn("one", F.lit(1))
''',
    "by_year": '''\
"""Visits by year: a group by an expression."""
from twofold import F, table


@table()
def by_year(newest):
    return newest.groupBy(F.year("at").alias("year")).agg(F.count("*").alias("n"))
''',
    "by_zone": '''\
"""Visits by zone."""
from twofold import F, table


@table()
def by_zone(newest):
    return newest.groupBy("Zone").agg(F.count("*").alias("n"))
''',
    "by_order": '''\
"""Visits by two words of SQL, of a topic."""
from twofold import F, table


@table()
def by_order(visits):
    return visits.groupBy("null", "order").agg(F.count("*").alias("n"))
''',
    "by_weight": '''\
"""Visits by a floating-point number."""
from twofold import F, table


@table()
def by_weight(newest):
    return newest.groupBy("weight").agg(F.count("*").alias("n"))
''',
    "by_user": '''\
"""Visits by a number of twenty digits."""
from twofold import F, table


@table()
def by_user(newest):
    return newest.groupBy("user").agg(F.count("*").alias("n"))
''',
    "by_repo": '''\
"""Visits of a topic by a field of an object, another by an expression of it."""
from twofold import F, table


@table()
def by_repo(visits):
    return visits.groupBy(F.col("repo.name"), F.lower("repo.name").alias("small")).agg(F.count("*").alias("n"))
''',
    "by_letter": '''\
"""Newest visits by an expression of a text, in SQL."""
from twofold import sql, table


@table()
def by_letter(newest):
    text = "SELECT upper(substring(repo.name, 1, 1)) AS letter, cast(at AS DATE) AS day, count(*) AS n"
    return sql(text + " FROM {newest} GROUP BY 1, 2", newest=newest)
''',
    "by_share": '''\
"""Newest visits by a quotient that other visits do not have."""
from twofold import F, table


@table()
def by_share(newest):
    share = 12 / (F.col("order") - 1)
    return newest.where("order <> 1").groupBy(share.alias("share")).agg(F.count("*").alias("n"))
''',
    "nth": '''\
"""Which visit of its zone each one is."""
from twofold import F, Window, table


@table()
def nth(newest):
    order = Window.partitionBy("Zone").orderBy("id")
    return newest.select("id", "Zone", F.row_number().over(order).alias("nth"))
''',
}


USER = 12_345_678_901_234_567_891
"""More than 64 bits hold."""
FIRST = [
    {"id": 1, "Zone": "a", "order": 1, "null": "x", "weight": 0.0},
    {"id": 2, "Zone": "a", "order": 2, "null": "x", "weight": 1.5},
    {"id": 3, "Zone": "b", "order": 2, "null": "x", "weight": -9.0},
]
THEN = [
    {"id": 3, "Zone": "b", "order": 2, "null": "x", "weight": -9.0, "at": "2014-01-01T00:00:00Z"},
    {"id": 4, "Zone": "a", "order": 1, "null": "y", "weight": -0.0},
    {"id": 5, "Zone": "a", "order": 1, "null": "x", "weight": 1.5},
    {"id": 6, "Zone": "c", "order": None, "null": None, "weight": -1.0},
]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A plant whose tables took in both micro-batches, one by one."""
    folder = tmp_path_factory.mktemp("scopes")
    files = {f"plant/{name}.py": text for name, text in {"visits": VISITS, "newest": NEWEST, **TABLES}.items()}
    registry = load(written(folder / "declared", files))
    assert not registry.faults
    world = World(spark, Settings(home=folder / "home", shuffle_partitions=1), "plant", registry)
    for visits in (FIRST, THEN):
        world.append(
            {
                "visits": [
                    json.dumps({"at": "2013-01-01T00:00:00Z", "user": USER, **with_repo(visit)}).encode()
                    for visit in visits
                ]
            }
        )
        world.maintain(world.all_tables)
    return world


def with_repo(visit: dict[str, Any]) -> dict[str, Any]:
    """The visit with a repository: capitals of three alphabets, one of which has no small letter of its own length."""
    return {**visit, "repo": {"name": ["Ab", "aB", "\u0130x", None, "\u0130X", "Ab"][visit["id"] - 1]}}


def rows(world: World, name: str) -> set[tuple[Any, ...]]:
    columns = world.rows(f"plant.{name}").to_pydict().values()
    return set(zip(*columns, strict=True))


def test_a_count_of_all_rows_follows_each_of_them(world: World) -> None:
    assert rows(world, "how_many") == {(6, 1)}


def test_groups_by_an_expression_lose_the_row_that_moved_away(world: World) -> None:
    assert rows(world, "by_year") == {(2013, 5), (2014, 1)}


def test_a_column_with_a_capital_letter_is_followed(world: World) -> None:
    assert rows(world, "by_zone") == {("a", 4), ("b", 1), ("c", 1)}


def test_columns_named_like_words_of_sql_are_followed(world: World) -> None:
    assert rows(world, "by_order") == {("x", 1, 2), ("x", 2, 3), ("y", 1, 1), (None, None, 1)}


def test_zero_of_either_sign_and_nan_keep_their_rows(world: World) -> None:
    numbers = {(None if math.isnan(weight) else weight, n) for weight, n in rows(world, "by_weight")}
    assert numbers == {(0.0, 2), (1.5, 2), (None, 2)}


def test_numbers_beyond_64_bits_find_all_their_rows(world: World) -> None:
    assert rows(world, "by_user") == {(Decimal(USER), 6)}


def test_a_group_by_a_field_of_an_object_follows_its_rows(world: World) -> None:
    dotted = "i\u0307x"
    assert rows(world, "by_repo") == {
        ("Ab", "ab", 2), ("aB", "ab", 1), ("\u0130x", dotted, 2), (None, None, 1), ("\u0130X", dotted, 1),
    }  # fmt: skip
    assert world.registry.find_table("by_repo").scope_columns == {
        "visits": {"name": "repo.name", "small": "lower(repo.name)"}
    }


def test_a_group_by_expressions_of_sql_follows_a_row_that_moves(world: World) -> None:
    first, later = date(2013, 1, 1), date(2014, 1, 1)
    assert rows(world, "by_letter") == {("A", first, 3), ("\u0130", later, 1), (None, first, 1), ("\u0130", first, 1)}


def test_a_new_row_gets_its_number_among_the_earlier_ones(world: World) -> None:
    assert rows(world, "nth") == {(1, "a", 1), (2, "a", 2), (4, "a", 3), (5, "a", 4), (3, "b", 1), (6, "c", 1)}


def test_rows_that_are_left_out_need_no_value_of_the_scope(world: World) -> None:
    assert rows(world, "by_share") == {(12.0, 2)}
