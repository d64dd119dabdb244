"""Params of a run reach a command only when they can be meant."""

from __future__ import annotations

import pytest

from twofold.dags.operators.params import (
    audit_arguments,
    audit_topic_arguments,
    awaited_arguments,
    backfill_arguments,
    look_arguments,
    recover_arguments,
    redrive_arguments,
    replay_arguments,
    wait_s,
)
from twofold.infra.errors import BadArgument

TABLES = ["flights.flights", "flights.carrier_days"]
TOPICS = ["flights.departures"]
TABLE = "flights.flights"
DAY = {"start": "2013-01-05T00:00:00Z", "end": "2013-01-06T00:00:00Z"}
RANGE = ["flights.flights", "--start", "2013-01-05T00:00:00+00:00", "--end", "2013-01-06T00:00:00+00:00"]


def test_a_backfill_names_its_table_and_its_range_in_utc() -> None:
    assert backfill_arguments(DAY | {"start": "2013-01-04T19:00:00-05:00"}, TABLE) == RANGE


def test_a_run_of_a_day_is_about_that_day() -> None:
    """The form has proposed another range by then."""
    proposed = {"start": "2013-02-03T00:00:00Z", "end": "2013-02-04T00:00:00Z"}
    assert backfill_arguments(proposed, TABLE, "2013-01-05") == RANGE


def test_a_run_of_a_day_is_not_about_all_rows() -> None:
    with pytest.raises(BadArgument, match="everything=True in a run of the day 2013-01-05"):
        backfill_arguments({"everything": True}, TABLE, "2013-01-05")


@pytest.mark.parametrize("proposed", [{"start": None, "end": None}, DAY])
def test_a_backfill_of_all_rows_has_no_range(proposed: dict[str, object]) -> None:
    assert backfill_arguments({**proposed, "everything": True}, TABLE) == ["flights.flights"]


@pytest.mark.parametrize(("everything", "option"), [(False, []), (True, ["--all"])])
def test_an_audit_names_its_tables(everything: bool, option: list[str]) -> None:
    assert audit_arguments({"everything": everything}, TABLES) == [*TABLES, *option]


@pytest.mark.parametrize("everything", ["yes", 1, None])
def test_an_audit_that_cannot_be_meant_is_refused(everything: object) -> None:
    with pytest.raises(BadArgument, match="expected true or false"):
        audit_arguments({"everything": everything}, TABLES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": "2013-01-07T00:00:00Z"}, "is not before"),
        ({"start": "2013-01-06T00:00:00Z"}, "is not before"),
        ({"start": "2013-01-05"}, "with an offset"),
        ({"end": "tomorrow"}, "end='tomorrow': expected a date"),
        ({"end": 7}, "end=7: expected text"),
        ({"start": None, "end": None}, "start='': expected a date"),
        ({"end": None}, "end='': expected a date"),
        ({"everything": "true", "start": None, "end": None}, "everything='true': expected true or false"),
    ],
)
def test_a_backfill_that_cannot_be_meant_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        backfill_arguments(DAY | change, TABLE)


@pytest.mark.parametrize(("verify", "option"), [(False, "--pending"), (True, "--verify")])
def test_reconcile_looks_at_all_tables_and_verifies_on_demand(verify: bool, option: str) -> None:
    assert look_arguments({"verify": verify}, TABLES) == [*TABLES, option]


@pytest.mark.parametrize("verify", ["yes", "--json", 1, None])
def test_a_verify_that_is_no_boolean_is_refused(verify: object) -> None:
    with pytest.raises(BadArgument, match="expected true or false"):
        look_arguments({"verify": verify}, TABLES)


def test_a_replay_without_offsets_takes_the_whole_topic() -> None:
    whole = {"topic": "flights.departures", "from_offsets": None, "to_offsets": ""}
    assert replay_arguments(whole, TOPICS) == ["flights.departures"]


def test_a_replay_passes_offsets_on() -> None:
    params = {"topic": "flights.departures", "from_offsets": "0:10, 2:5", "to_offsets": "1200"}
    assert replay_arguments(params, TOPICS) == ["flights.departures", "--from", "0:10,2:5", "--to", "1200"]


def test_a_replay_passes_a_time_on_in_utc() -> None:
    params = {"topic": "flights.departures", "from_offsets": "2013-01-04T19:00:00-05:00"}
    assert replay_arguments(params, TOPICS) == ["flights.departures", "--from", "2013-01-05T00:00:00+00:00"]
    with pytest.raises(BadArgument, match="expected a date and a time with an offset"):
        replay_arguments(params | {"from_offsets": "2013-01-05T00:00"}, TOPICS)


@pytest.mark.parametrize("offsets", ["-1", "0:", "0:1;1:2", "--json", "0:1,2", "a:1"])
def test_offsets_in_another_form_are_refused(offsets: str) -> None:
    with pytest.raises(BadArgument, match="expected offsets"):
        replay_arguments({"topic": "flights.departures", "from_offsets": offsets}, TOPICS)


def test_a_topic_of_another_domain_is_refused() -> None:
    with pytest.raises(BadArgument, match=r"topic='trains\.departures' is unknown"):
        replay_arguments({"topic": "trains.departures"}, TOPICS)


@pytest.mark.parametrize(
    ("params", "arguments"),
    [
        ({}, []),
        ({"at_most": 0, "from_archive": False}, []),
        ({"at_most": 12, "from_archive": True}, ["--at-most", "12", "--from-archive"]),
    ],
)
def test_a_recovery_names_its_table_and_what_a_person_decided(params: dict[str, object], arguments: list[str]) -> None:
    assert recover_arguments({"table": "flights.flights", **params}, TABLES) == ["flights.flights", *arguments]


@pytest.mark.parametrize("change", [{"table": "flights.x"}, {"at_most": -1}, {"at_most": "3"}, {"at_most": True}])
def test_a_recovery_that_cannot_be_meant_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadArgument, match=next(iter(change))):
        recover_arguments({"table": "flights.flights", **change}, TABLES)


def test_a_replay_takes_partitions_and_the_archive_alone_on_demand() -> None:
    params = {"topic": "flights.departures", "partitions": "0, 2", "archived": True}
    assert replay_arguments(params, TOPICS) == ["flights.departures", "--partitions", "0,2", "--archived"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitions": "0;1"}, "partitions='0;1': expected numbers of partitions"),
        ({"partitions": "--json"}, "expected numbers of partitions"),
        ({"partitions": [0]}, "expected text"),
        ({"archived": "yes"}, "archived='yes': expected true or false"),
        ({"topic": "trains.departures"}, "is unknown"),
        ({"to_offsets": "soon"}, "expected offsets"),
    ],
)
def test_a_range_that_cannot_be_meant_is_refused_by_every_dag_of_a_topic(
    change: dict[str, object], message: str
) -> None:
    params = {"topic": "flights.departures"} | change
    for arguments in (replay_arguments, redrive_arguments, audit_topic_arguments, awaited_arguments):
        if "archived" in change and arguments in (redrive_arguments, audit_topic_arguments):
            continue
        given = params | {"from_offsets": "1"}
        with pytest.raises(BadArgument, match=message):
            arguments(given, TOPICS)


def test_a_redrive_passes_its_reason_on_whatever_it_looks_like() -> None:
    params = {"topic": "flights.departures", "reason": "--json at most", "to_offsets": "0:7"}
    assert redrive_arguments(params, TOPICS) == ["flights.departures", "--reason=--json at most", "--to", "0:7"]
    assert redrive_arguments({"topic": "flights.departures", "reason": " "}, TOPICS) == ["flights.departures"]


def test_an_audit_of_topics_takes_all_or_a_range_of_one() -> None:
    both = ["flights.departures", "flights.weather"]
    assert audit_topic_arguments({"topic": None}, both) == both
    assert audit_topic_arguments({"topic": both[1], "from_offsets": "5"}, both) == [both[1], "--from", "5"]
    with pytest.raises(BadArgument, match="--from 5 without a topic"):
        audit_topic_arguments({"topic": None, "from_offsets": "5"}, both)


def test_only_a_range_is_waited_for() -> None:
    topic = {"topic": "flights.departures"}
    assert awaited_arguments(topic, TOPICS) == []
    assert awaited_arguments({"topic": None}, TOPICS) == []
    assert awaited_arguments(topic | {"archived": True}, TOPICS) == ["flights.departures", "--archived", "--dry-run"]
    assert awaited_arguments(topic | {"to_offsets": "9"}, TOPICS) == ["flights.departures", "--to", "9", "--dry-run"]


@pytest.mark.parametrize("minutes", ["5", -1, 1.5, True, 10_081, None])
def test_a_wait_is_whole_minutes_up_to_a_week(minutes: object) -> None:
    assert wait_s({"wait_min": 5}) == 300
    with pytest.raises(BadArgument, match="expected whole minutes, from 0 to 10,080"):
        wait_s({"wait_min": minutes})
