"""The kinds of table that flights do not need: a shop's stream, corrected, equals DuckDB's answer from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz.fuzz_cases import Schedule
from tests.fuzz.fuzz_check import Subject
from tests.fuzz.fuzz_worlds import WORLDS as ALL_WORLDS
from tests.fuzz.fuzz_worlds import over_worlds, timeout_s
from tests.fuzz.shrink import failure_of
from tests.kinds.shop_cases import Case, cases, log_of, owners, schedules
from tests.kinds.shop_oracle import Oracle
from twofold.features.webhooks.webhook_topic import WebhookTopic
from twofold.tables.declare.registry import Registry, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def of_records(registry: Registry) -> Registry:
    """The topics that the shop's services write to, and what is made of them.

    What is captured, and what webhooks bring, has tests of its own.
    """
    topics = {
        name: topic
        for name, topic in registry.topics.items()
        if not topic.captures and not isinstance(topic, WebhookTopic)
    }
    tables = {name: t for name, t in registry.tables.items() if registry.above(t).topics.keys() <= topics.keys()}
    return Registry(topics, tables)


MOST_FOLLOWERS = 2
WORLDS = max(1, ALL_WORLDS // 2)
SHOP = Subject(
    domain="shop",
    registry=of_records(load()),
    log_of=log_of,
    owners=owners,
    oracle=lambda log, _: Oracle(log, MOST_FOLLOWERS),
)

pytestmark = [pytest.mark.spark, pytest.mark.worlds, pytest.mark.timeout(timeout_s(WORLDS))]


@pytest.fixture(autouse=True)
def few_followers_make_an_author_popular(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases have four followers, who come and go: authors become popular, and cease to be."""
    derive = load().find_table("shop.popular_authors").derive
    monkeypatch.setitem(derive.__globals__, "MOST_FOLLOWERS", MOST_FOLLOWERS)


@over_worlds(cases, schedules, WORLDS)
def test_after_reconcile_every_table_equals_what_duckdb_says_of_the_log(
    spark: SparkSession, world: list[Case], schedule: Schedule
) -> None:
    """A world of 26 cases goes through every table of the shop, with restarts and reconciles."""
    wrong = failure_of(spark, world, schedule, SHOP)
    assert not wrong, wrong
