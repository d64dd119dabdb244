"""Patterns match in time order, whatever the order of arrival."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.tables.declared import written
from twofold.declared.flights.missed_turnarounds import late_after_late
from twofold.infra.project.settings import Settings
from twofold.tables.declare import registry
from twofold.tables.declare.functions.event_patterns import Event, Match, _by_key, find_matches, times_then
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def flight(name: str, leaves: int, lands: int | None, late_out: int = 0, late_in: int | None = 0) -> dict[str, Any]:
    """A flight of one plane; minutes after noon."""
    return {
        "tail_number": "N1",
        "flight_id": name,
        "departed_at": NOON + leaves * MINUTE,
        "departure_delay_min": late_out,
        "departed_record": {"topic": "flights.departures", "partition": 0, "offset": leaves},
        "arrived_at": None if lands is None else NOON + lands * MINUTE,
        "arrival_delay_min": None if lands is None else late_in,
        "arrived_record": None if lands is None else {"topic": "flights.arrivals", "partition": 0, "offset": lands},
    }


def found(*flights: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(m["landed_flight_id"], m["left_flight_id"]) for m in late_after_late(flights)]


@pytest.mark.parametrize(
    ("late_in", "leaves", "late_out", "is_match"),
    [
        (31, 61, 16, True),
        (30, 61, 16, False),
        (31, 61, 15, False),
        (31, 60, 16, True),  # at the moment of landing
        (31, 59, 16, False),  # not yet landed: another plane by the same name
        (31, 240, 16, True),  # exactly three hours after it
        (31, 241, 16, False),
    ],
)
def test_a_late_landing_and_departure_within_three_hours_match(
    late_in: int, leaves: int, late_out: int, is_match: bool
) -> None:
    first, second = flight("A", 0, 60, late_in=late_in), flight("B", leaves, leaves + 60, late_out=late_out)
    assert found(first, second) == ([("A", "B")] if is_match else [])


def test_only_the_next_departure_counts() -> None:
    punctual, late = flight("B", 100, 160, late_out=5), flight("C", 200, 260, late_out=50)
    assert found(flight("A", 0, 60, late_in=45), punctual, late) == []
    assert found(flight("A", 0, 60, late_in=45), late) == [("A", "C")]


def test_a_match_names_the_records_of_the_landing_and_of_the_departure() -> None:
    [match] = late_after_late([flight("A", 0, 60, late_in=45), flight("B", 100, 160, late_out=50)])
    assert match["landed_record"] == {"topic": "flights.arrivals", "partition": 0, "offset": 60}
    assert match["left_record"] == {"topic": "flights.departures", "partition": 0, "offset": 100}


def test_a_plane_can_hand_its_delay_on_more_than_once() -> None:
    chain = [flight(name, at, at + 60, late_out=20, late_in=40) for name, at in (("A", 0), ("B", 90), ("C", 200))]
    assert found(*chain) == [("A", "B"), ("B", "C")]


def test_a_flight_that_never_landed_hands_nothing_on() -> None:
    assert found(flight("A", 0, None), flight("B", 30, 60, late_out=50)) == []


def test_what_is_not_known_to_be_late_is_not_late() -> None:
    assert found(flight("A", 0, 60, late_in=None), flight("B", 90, 150, late_out=50)) == []


def unanswered(events: Sequence[Event]) -> Iterator[Match]:
    """Calls without an answer within an hour: from the call on, until one comes; final at `final_at`."""
    for number, call in enumerate(events):
        until = call["at"] + timedelta(hours=1)
        later = events[number + 1 :]
        if call["kind"] == "call" and not any(e["kind"] == "answer" and e["at"] <= until for e in later):
            yield {"line": call["line"], "called_at": call["at"], "final_at": until}


def test_what_only_the_passing_of_time_decides_is_there_early_and_revised() -> None:
    call = {"line": "a", "kind": "call", "at": NOON}
    other = {"line": "a", "kind": "noise", "at": NOON + 30 * MINUTE}
    early = [{"line": "a", "called_at": NOON, "final_at": NOON + 60 * MINUTE}]
    assert list(unanswered([call])) == early
    assert list(unanswered([call, other])) == early
    assert list(unanswered([call, other, {"line": "a", "kind": "answer", "at": NOON + 60 * MINUTE}])) == []
    assert list(unanswered([call, other, {"line": "a", "kind": "answer", "at": NOON + 61 * MINUTE}])) == early


def locked_out(kinds: str) -> list[tuple[str, str]]:
    """Matches of "twice a, then b, within four minutes" among events a minute apart, by their places."""
    events = [{"name": str(n), "kind": kind, "at": NOON + n * MINUTE} for n, kind in enumerate(kinds)]
    found = times_then(events, 2, lambda e: e["kind"] == "a", lambda e: e["kind"] == "b", at="at", within=4 * MINUTE)
    return [("".join(e["name"] for e in first), then["name"]) for first, then in found]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("aab", [("01", "2")]),
        ("ab", []),
        ("aaab", [("12", "3")]),  # the last ones
        ("a-a-b", [("02", "4")]),  # exactly four minutes
        ("a-a--b", []),
        ("aabb", [("01", "2")]),  # each a counts once
        ("abab", []),
        ("aabaab", [("01", "2"), ("34", "5")]),
        ("b", []),
        ("", []),
    ],
)
def test_n_times_a_then_b(kinds: str, expected: list[tuple[str, str]]) -> None:
    assert locked_out(kinds) == expected


def test_a_key_whose_events_are_in_several_batches_is_one() -> None:
    keys = [["a", "a", None], [None, "b"], ["b", "b"], ["c"], ["d", "d"], []]
    batches = [pa.record_batch({"line": pa.array(lines, pa.string()), "n": list(range(len(lines)))}) for lines in keys]
    found = [[[(e["line"], e["n"]) for e in events] for events in ended] for ended in _by_key(batches, ["line"])]
    a, none, b = [("a", 0), ("a", 1)], [(None, 2), (None, 0)], [("b", 1), ("b", 0), ("b", 1)]
    assert found == [[a], [none], [], [b], [[("c", 0)]], [], [[("d", 0), ("d", 1)]]]
    floats = pa.record_batch({"line": [0.5, float("nan"), float("nan")]})
    assert [len(events) for ended in _by_key([floats], ["line"]) for events in ended] == [1, 2]


@pytest.mark.spark
def test_each_key_is_searched_by_itself_in_the_order_of_time(spark: SparkSession) -> None:
    def steps(events: Sequence[Event]) -> Iterator[Match]:
        yield {"line": events[0]["line"], "kinds": [e["kind"] for e in events], "first_at": events[0]["at"]}

    rows = [("b", "3", NOON), ("a", "2", NOON), ("a", "1", NOON - MINUTE), (None, "5", None), ("a", "0", None)]
    events = spark.createDataFrame([*rows, ("a", "1", NOON)], "line string, kind string, at timestamp")
    result = find_matches(
        events.repartition(3),
        key=["line"],
        order=["at", "kind"],
        find=steps,
        returns="line string, kinds array<string>, first_at timestamp, rest double",
    )
    assert {row["line"]: (row["kinds"], row["first_at"], row["rest"]) for row in result.toArrow().to_pylist()} == {
        "a": (["0", "1", "1", "2"], None, None),
        "b": (["3"], NOON, None),
        None: (["5"], None, None),
    }


@pytest.mark.spark
@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"lime": "a"}, "a match has lime"),
        ({"line": "b"}, "a match has line='b'; expected 'a', the value of its events' key"),
    ],
)
def test_a_match_that_its_declaration_does_not_allow_is_refused(
    spark: SparkSession, found: Match, message: str
) -> None:
    def wrong(events: Sequence[Event]) -> Iterator[Match]:
        yield found

    events = spark.createDataFrame([("a", NOON)], "line string, at timestamp")
    with pytest.raises(Exception, match=message):
        find_matches(events, key=["line"], order=["at"], find=wrong, returns="line string").collect()


CALLS = '''\
"""Calls and answers."""
from twofold import Topic

TOPIC = Topic(
    schema={"line": "string", "kind": "string", "at": "timestamp"},
    event_time="at",
    message_key="line",
    dedup_keys=["line", "kind"],
)
'''
UNANSWERED = '''\
"""Calls without an answer within an hour."""
from datetime import timedelta

from twofold import table
from twofold.tables.declare.functions.event_patterns import find_matches

HOUR = timedelta(hours=1)


@table(primary_key=["line", "called_at"], event_time="called_at", depends_within="1 hour")
def unanswered(calls):
    return find_matches(
        calls, key=["line"], order=["at", "kind"], find=_unanswered,
        returns="line string, called_at timestamp, final_at timestamp",
    )


def _unanswered(events):
    for number, call in enumerate(events):
        until = call["at"] + HOUR
        if call["kind"] == "call" and not any(e["kind"] == "answer" and e["at"] <= until for e in events[number + 1:]):
            yield {"line": call["line"], "called_at": call["at"], "final_at": until}
'''


@pytest.mark.spark
def test_an_answer_that_comes_late_takes_the_match_away(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    folder = written(tmp_path, {"phones/calls.py": CALLS, "phones/unanswered.py": UNANSWERED})
    world = World(spark, settings, "phones", registry.load(folder))
    assert world.registry.find_table("unanswered").recompute_by == ("line",)

    def hear(*events: tuple[str, str, int]) -> list[tuple[str, datetime]]:
        records = [
            {"line": line, "kind": kind, "at": (NOON + minute * MINUTE).isoformat()} for line, kind, minute in events
        ]
        world.append({"phones.calls": [json.dumps(record).encode() for record in records]})
        world.maintain(["unanswered"])
        rows = world.rows("phones.unanswered").to_pylist()
        return sorted((row["line"], row["called_at"]) for row in rows)

    assert hear(("a", "call", 0), ("b", "call", 5)) == [("a", NOON), ("b", NOON + 5 * MINUTE)]
    assert hear(("b", "answer", 65)) == [("a", NOON)]
    assert hear(("a", "call", 600)) == [("a", NOON), ("a", NOON + 600 * MINUTE)]
    assert hear(("a", "answer", 60)) == [("a", NOON + 600 * MINUTE)]  # ten hours late
    assert [o.changed for o in world.reconcile(["unanswered"])] == [0]
