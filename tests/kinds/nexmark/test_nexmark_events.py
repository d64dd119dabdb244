"""The events of Nexmark have the published proportions, ids and times, and are the same in every run."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta

import pytest

from benchmarks.nexmark.nexmark_events import AUCTION, BID, PERSON, START, events, log_of

EVENTS = list(events(10_000))


def values(topic: str) -> list[dict[str, object]]:
    return [event.value for event in EVENTS if event.topic == topic]


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    assert Counter(event.topic for event in EVENTS) == {PERSON: 200, AUCTION: 600, BID: 9_200}
    assert [event.topic for event in EVENTS[50:56]] == [PERSON, AUCTION, AUCTION, AUCTION, BID, BID]


def test_ids_count_from_a_thousand_without_a_gap() -> None:
    assert [value["id"] for value in values(PERSON)] == list(range(1_000, 1_200))
    assert [value["id"] for value in values(AUCTION)] == list(range(1_000, 1_600))


def test_half_of_the_bids_are_for_the_hot_auction() -> None:
    bids = values(BID)
    hot = sum(bid["auction"] in range(1_000, 1_600, 100) for bid in bids)
    assert hot / len(bids) == pytest.approx(0.5, abs=0.02)
    assert sum(bid["bidder"] in (1_001, 1_101) for bid in bids) / len(bids) == pytest.approx(0.75, abs=0.02)
    assert sum(auction["seller"] in (1_000, 1_100) for auction in values(AUCTION)) / 600 == pytest.approx(
        0.75, abs=0.05
    )


def test_half_of_the_bids_come_by_four_channels() -> None:
    bids = values(BID)
    others = [bid for bid in bids if str(bid["channel"]).startswith("channel-")]
    assert len(others) / len(bids) == pytest.approx(0.5, abs=0.02)
    assert len({bid["channel"] for bid in bids} - {bid["channel"] for bid in others}) == 4
    assert sum("&channel_id=" in str(bid["url"]) for bid in others) / len(others) == pytest.approx(0.9, abs=0.02)


def test_prices_are_from_one_dollar_to_a_million_evenly_by_magnitude() -> None:
    prices = [int(str(bid["price"])) for bid in values(BID)]
    assert min(prices) >= 100
    assert max(prices) <= 100_000_000
    assert sum(price < 100_000 for price in prices) / len(prices) == pytest.approx(0.5, abs=0.02)


def test_each_event_has_a_millisecond_of_its_own() -> None:
    assert [event.at for event in events(3, per_second=1_000)] == [START + timedelta(milliseconds=n) for n in range(3)]
    assert len({event.at for event in EVENTS}) == len(EVENTS)
    assert EVENTS[21].value["date_time"] == "2026-01-01T23:58:21.050Z"


def test_bids_may_name_an_auction_that_is_not_known_yet_or_is_over() -> None:
    began: set[object] = set()
    ends: dict[object, datetime] = {}
    early = over = 0
    for event in EVENTS:
        if event.topic == AUCTION:
            began.add(event.value["id"])
            ends[event.value["id"]] = datetime.fromisoformat(event.value["expires"])
        elif event.topic == BID:
            early += event.value["auction"] not in began
            over += event.at > ends.get(event.value["auction"], event.at)
    assert early > 100
    assert over > 100


@pytest.mark.parametrize(("topic", "size"), [(PERSON, 200), (AUCTION, 500), (BID, 100)])
def test_events_are_on_average_as_large_as_published(topic: str, size: int) -> None:
    times, left_out = {"date_time": 8, "expires": 8}, {"channel": 0, "url": 0}
    sizes = [
        sum((times | left_out).get(name, len(v) if isinstance(v, str) else 8) for name, v in value.items())
        for value in values(topic)
    ]
    assert sum(sizes) / len(sizes) == pytest.approx(size, rel=0.05)


def test_an_event_follows_from_the_seed_and_its_number() -> None:
    assert list(events(300, first=200)) == EVENTS[200:300]
    assert list(events(300, seed=2)) != EVENTS[:300]
    assert log_of(EVENTS[:300]) == log_of(reversed(EVENTS[:300]))


def test_some_records_arrive_late_and_some_twice() -> None:
    log = log_of(EVENTS)
    assert [record.at for record in log] == sorted(record.at for record in log)
    late = [r for r in log if r.at - datetime.fromisoformat(json.loads(r.value)["date_time"]) > timedelta(seconds=9)]
    assert 200 < len(late) < 700
    assert 200 < len(log) - len({record.value for record in log}) < 400
    assert {record.value for record in log} == {record.value for record in log_of(EVENTS, late=0, repeated=0)}
