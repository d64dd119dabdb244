"""Searches of the shop mean the same to DuckDB, which asks each of them of each post, as they do to the platform."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kinds.shop_cases import Case, followed_cases, log_of
from tests.kinds.shop_oracle import Oracle
from twofold.features.search.stored_query import anchors_of, parse, searchable
from twofold.infra.errors import BadArgument

LATER = datetime(2030, 1, 1, tzinfo=UTC)
COMMON = ("the", "is", "here")


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(st.lists(followed_cases, min_size=5, max_size=20))
def test_matches_and_anchors_are_those_that_duckdb_finds(world: list[Case]) -> None:
    oracle = Oracle(log_of(world), most_followers=2)
    posts, terms, matches = (
        oracle.expected(f"shop.{name}", LATER).to_pylist()
        for name in ("posts", "saved_search_terms", "matching_searches")
    )
    found, anchors = list[tuple[str, str]](), set[tuple[str, str | None, str | None]]()
    for search, written in {row["search_id"]: row["query"] for row in terms}.items():
        try:
            query = parse(written, "english", ["version"])
        except BadArgument as fault:
            anchors.add((search, None, fault.message))
            continue
        anchors |= {(search, anchor, None) for anchor in anchors_of(query, COMMON, "english")}
        met = (p for p in posts if query.is_met(searchable([p["text"]], "english"), {"version": p["version"]}))
        found += ((search, post["post_id"]) for post in met)
    assert sorted((row["search_id"], row["post_id"]) for row in matches) == sorted(found)
    assert {(row["search_id"], row["anchor"], row["mistake"]) for row in terms} == anchors
