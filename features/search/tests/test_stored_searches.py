"""Searches over a stream: each pair of a text and a query that it meets is a row, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from twofold.features.search.stored_searches import search_matches, search_terms
from twofold.infra.errors import BadDeclaration
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.scope import scopes_of
from twofold.testing.worlds import Keyed, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POSTS = [
    (1, "A red lamp, and a blue one", None, 3),
    (2, "Two LAMPS", "red", 5),
    (3, None, None, None),
    (4, "", "lamp red", 0),
]
SEARCHES = [
    ("a", "red lamp"),
    ("b", '"red lamp"'),
    ("c", "red OR lamp OR blue"),
    ("d", "NOT lamp"),
    ("e", "stars:3.."),
    ("f", "lamp NOT stars:..4"),
    ("g", "lamp ("),
    ("h", None),
    ("i", "size:3"),
]
TABLES = ["shop.posts", "shop.saved_search_terms", "shop.matching_searches"]
SHOP = load()
SEARCHED = Registry(
    {f"shop.{name}": SHOP.find_topic(f"shop.{name}") for name in ("post_events", "saved_searches")},
    {name: SHOP.find_table(name) for name in TABLES},
)


@pytest.fixture
def posts(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(POSTS, "post_id long, title string, body string, stars int")


@pytest.fixture
def searches(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(SEARCHES, "search_id string, query string")


def test_each_pair_that_matches_is_one_row(posts: DataFrame, searches: DataFrame) -> None:
    terms = search_terms(searches, numbers=["stars"])
    found = search_matches(posts, terms, text=["title", "body"], numbers=["stars"])
    assert found.columns == ["post_id", "title", "body", "stars", "search_id", "query"]
    pairs = sorted((row["search_id"], row["post_id"]) for row in found.toArrow().to_pylist())
    assert pairs == [
        *(("a", 1), ("a", 2), ("a", 4)),
        ("b", 1),
        *(("c", 1), ("c", 2), ("c", 4)),
        ("d", 3),
        *(("e", 1), ("e", 2)),
        ("f", 2),
    ]


def test_a_query_that_cannot_be_read_has_a_row_that_says_why(searches: DataFrame) -> None:
    rows = search_terms(searches, numbers=["stars"], common=["lamp"]).toArrow().to_pylist()
    anchors = sorted((row["search_id"], row["anchor"]) for row in rows if row["mistake"] is None)
    assert anchors == [
        ("a", "red"), ("b", "red"), ("c", "blue"), ("c", "lamp"), ("c", "red"), ("d", "*"), ("e", "*"), ("f", "lamp"),
    ]  # fmt: skip
    mistakes = {row["search_id"]: row["mistake"] for row in rows if row["anchor"] is None}
    assert mistakes == {
        "g": "position 7: expected a word, a phrase, a range, NOT or `(`; found the end.",
        "h": "position 1: expected a query; found null.",
        "i": "position 1: expected no `size:`, since the numbers are stars; "
        'write "..." around text with a colon; found `size:3`.',
    }


def test_terms_of_another_language_are_refused(posts: DataFrame, searches: DataFrame) -> None:
    terms = search_terms(searches, language="german", numbers=["stars"])
    with pytest.raises(Exception, match="expects terms of the language 'english'; search_terms made some of 'german'"):
        search_matches(posts, terms, text=["title"], numbers=["stars"]).toArrow()


def post(number: int, text: str, version: int = 1) -> bytes:
    record = {"post_id": f"m{number}", "author": "c1", "kind": "posted", "version": version, "text": text}
    return json.dumps({**record, "happened_at": "2026-01-01T00:00:00Z"}).encode()


def save(search: str, query: str | None) -> Keyed:
    """A search that is saved or changed; None: that is removed."""
    value = {"customer": "c2", "name": search, "query": query, "saved_at": "2026-01-01T00:00:00Z"}
    return Keyed(search.encode(), None if query is None else json.dumps(value).encode())


@pytest.mark.parametrize(
    "small_rows", [pytest.param(0, id="by Spark", marks=pytest.mark.prove), pytest.param(50_000, id="by DuckDB")]
)
def test_a_new_search_reaches_the_past_and_a_change_only_its_own_pairs(
    spark: SparkSession, tmp_path: Path, small_rows: int
) -> None:
    world = World(spark, Settings(home=tmp_path, small_rows=small_rows), "shop", SEARCHED)

    def follow(**records: list[Any]) -> tuple[set[tuple[str, str]], int]:
        """The pairs once these records are in, and how many rows were written for them."""
        version = world.lake.open(TABLES[-1]).version()
        world.append(records)
        world.maintain(TABLES)
        found = world.rows(TABLES[-1]).to_pylist()
        changed = world.lake.open(TABLES[-1]).load_cdf(starting_version=version + 1, allow_out_of_range=True)
        return {(row["search_id"], row["post_id"]) for row in found}, len(pa.table(changed.read_all()))

    assert follow(post_events=[post(1, "a red lamp"), post(2, "two lamps"), post(3, "a cup")]) == (set(), 0)
    past = follow(saved_searches=[save("s1", "lamp"), save("s2", "red OR cup"), save("s3", "lamp (")])
    assert past == ({("s1", "m1"), ("s1", "m2"), ("s2", "m1"), ("s2", "m3")}, 4)
    assert follow(post_events=[post(4, "red cups")]) == (past[0] | {("s2", "m4")}, 1)
    assert follow(post_events=[post(2, "two cups", version=2)])[0] == {
        *(("s1", "m1"), ("s2", "m1"), ("s2", "m2"), ("s2", "m3"), ("s2", "m4"))
    }
    changed = follow(saved_searches=[save("s2", '"red lamp"'), save("s3", "NOT lamp"), save("s1", None)])
    assert changed[0] == {("s2", "m1"), ("s3", "m2"), ("s3", "m3"), ("s3", "m4")}
    assert not [one for one in world.reconcile(TABLES, verify=True) if one.changed or one.unexplained]


def test_a_search_and_a_post_have_scopes_of_their_own_without_spark() -> None:
    table = SEARCHED.find_table(TABLES[-1])
    times = pa.nulls(3, pa.timestamp("us", tz="UTC"))
    rows = pa.table({"post_id": ["m1", "m1", "m2"], "search_id": ["s1", "s2", "s2"], "posted_at": times})
    of_posts = scopes_of(table, SEARCHED.find_table(TABLES[0]), rows.drop("search_id"))
    of_searches = scopes_of(table, SEARCHED.find_table(TABLES[1]), rows.drop("post_id"))
    assert [scope.values for scope in of_posts] == [("m1", ...), ("m2", ...)]
    assert [scope.values for scope in of_searches] == [(..., "s1"), (..., "s2")]
    assert SEARCHED.find_table(TABLES[1]).inferred == ("recompute_by",)


@pytest.mark.parametrize("text", ["text", []])
def test_the_columns_that_are_searched_are_a_list(text: Any) -> None:
    rows: Any = None
    with pytest.raises(BadDeclaration, match=r"expected columns\.\nHint: Write text="):
        search_matches(rows, rows, text=text)
