"""A topic that fails is left out for a while, and the other topics of its domain go on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.streaming.ingest.small_domain import OTHER, READ, Domain
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import LogGap
from twofold.streaming.ingest.excluded_topics import ExcludedTopics
from twofold.streaming.ingest.topic_writer import TopicWriter
from twofold.streaming.query import progress
from twofold.tables.declare.topic import Topic


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_topic_that_fails_once_is_tried_again_at_once() -> None:
    left_out = ExcludedTopics(Clock())
    left_out.add("a", ValueError(), at_once=False)
    assert (set(left_out.now), left_out.wait_s, left_out.message) == (set(), None, "")


def test_a_topic_that_fails_repeatedly_is_left_out_for_longer_each_time() -> None:
    clock = Clock()
    left_out, pauses = ExcludedTopics(clock), []
    left_out.add("a", ValueError(), at_once=False)
    for _ in range(6):
        left_out.add("a", ValueError("no such column"), at_once=False)
        assert left_out.now == {"a"}
        pauses.append(left_out.wait_s)
        clock.now += left_out.wait_s or 0
        assert not left_out.now
    assert pauses == [60, 120, 240, 480, 900, 900]


def test_a_topic_that_goes_on_starts_again() -> None:
    left_out = ExcludedTopics(Clock())
    left_out.add("a", ValueError(), at_once=True)
    left_out.add("b", ValueError("no such column"), at_once=True)
    left_out.took("a")
    assert left_out.now == {"b"}
    assert left_out.message == "b is left out for 60 s, the other topics go on: no such column"
    left_out.add("a", ValueError(), at_once=False)
    assert left_out.now == {"b"}


@pytest.fixture
def domain(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Domain:
    return Domain(lake, monkeypatch)


def failing(monkeypatch: pytest.MonkeyPatch, topic: Topic) -> None:
    take = TopicWriter.take

    def fails(feed: TopicWriter, raw: pa.Table, ranges: Any) -> None:
        if feed._topic.full_name == topic.full_name:
            raise ValueError("no such column")
        take(feed, raw, ranges)

    monkeypatch.setattr(TopicWriter, "take", fails)


def test_what_fails_with_one_topic_is_in_of_the_others(domain: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, READ)
    for _ in range(2):
        with pytest.raises(ValueError, match="no such column"):
            domain.batch(0, 5)
    assert domain.logs[OTHER.full_name].faults({0: 5}) == []
    assert domain.ingest._left_out.now == {READ.full_name}
    assert domain.plan().topics == [OTHER.full_name]
    domain.ingest._active = [OTHER.full_name]
    del domain.logs[READ.full_name]
    domain.batch(5, 9)
    assert domain.logs[OTHER.full_name].faults({0: 9}) == []
    [told] = progress.read(domain.lake.settings)
    assert told.error.startswith("plant.readings is left out for 60 s, the other topics go on: no such column")


def test_a_topic_that_cannot_go_on_is_left_out_of_the_plan(domain: Domain) -> None:
    domain.plan()
    domain.batch(0, 5)
    domain.ids[READ.full_name] = "id of another log"
    assert domain.plan().topics == [OTHER.full_name]
    assert "another one of the same name" in domain.ingest._left_out.message


def test_a_recreated_topic_is_noticed_before_it_is_ingested(domain: Domain) -> None:
    domain.plan()
    domain.batch(0, 5)
    domain.ids[READ.full_name] = "id of another log"
    with pytest.raises(LogGap, match=r"plant\.readings: offsets up to .* another one of the same name"):
        domain.batch(5, 9)
    assert domain.logs[READ.full_name].faults({0: 5}) == []
    assert domain.logs[OTHER.full_name].faults({0: 9}) == []


def test_a_broker_that_does_not_say_which_log_it_has_stops_nothing(domain: Domain) -> None:
    domain.plan()
    domain.ids = {}
    domain.batch(0, 5)
    assert domain.logs[READ.full_name].faults({0: 5}) == []
