"""Params of a run reach a command only when they can be meant."""

from __future__ import annotations

import pytest

from dags.arguments import (
    audit_arguments,
    backfill_arguments,
    reconcile_arguments,
    recover_arguments,
    replay_arguments,
)
from infra.errors import BadArgument

TABLES = ["flights.flights", "flights.carrier_days"]
TOPICS = ["flights.departures"]
DAY = {"table": "flights.flights", "start": "2013-01-05T00:00:00Z", "end": "2013-01-06T00:00:00Z"}


def test_a_backfill_names_its_table_and_its_range_in_utc() -> None:
    params = DAY | {"start": "2013-01-04T19:00:00-05:00"}
    assert backfill_arguments(params, TABLES) == [
        "flights.flights", "--start", "2013-01-05T00:00:00+00:00", "--end", "2013-01-06T00:00:00+00:00",
    ]  # fmt: skip


def test_a_backfill_of_all_rows_has_no_range() -> None:
    params = {"table": "flights.flights", "start": None, "end": None, "everything": True}
    assert backfill_arguments(params, TABLES) == ["flights.flights"]


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
        ({"table": "../x"}, "table='../x' is unknown"),
        ({"table": "--verify"}, "table='--verify' is unknown"),
        ({"table": None}, "table='' is unknown"),
        ({"table": ["flights.flights"]}, "expected text"),
        ({"start": "2013-01-07T00:00:00Z"}, "is not before"),
        ({"start": "2013-01-06T00:00:00Z"}, "is not before"),
        ({"start": "2013-01-05"}, "with an offset"),
        ({"end": "tomorrow"}, "end='tomorrow': expected a date"),
        ({"end": 7}, "end=7: expected text"),
        ({"start": None, "end": None}, "start and end are empty"),
        ({"end": None}, "end='': expected a date"),
        ({"everything": True}, "everything=True beside start and end"),
        ({"everything": True, "end": None}, "everything=True beside start: expected a range or all rows"),
        ({"everything": "true", "start": None, "end": None}, "everything='true': expected true or false"),
    ],
)
def test_a_backfill_that_cannot_be_meant_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        backfill_arguments(DAY | change, TABLES)


@pytest.mark.parametrize(("verify", "options"), [(False, []), (True, ["--verify"])])
def test_reconcile_takes_all_tables_and_verifies_on_demand(verify: bool, options: list[str]) -> None:
    assert reconcile_arguments({"verify": verify}, TABLES) == [*TABLES, *options]


@pytest.mark.parametrize("verify", ["yes", "--json", 1, None])
def test_a_verify_that_is_no_boolean_is_refused(verify: object) -> None:
    with pytest.raises(BadArgument, match="expected true or false"):
        reconcile_arguments({"verify": verify}, TABLES)


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
