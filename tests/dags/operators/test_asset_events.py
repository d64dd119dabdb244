"""Events of assets, and what the tasks behind a command make of its report."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from twofold.infra.errors import ProcessFailed


def report(table: str, **facts: Any) -> dict[str, Any]:
    counts = ("touched", "scopes", "pending", "inserted", "updated", "deleted", "changed", "unexplained")
    versions = {"version_before": 6, "version_after": 7}
    return {
        "table": table,
        "cause": "late",
        "run": "run-1",
        "corrected": [],
        "days": [],
        **dict.fromkeys(counts, 0),
        **versions,
        **facts,
    }


class Events(list[Any]):
    """Airflow's outlet events of an alias."""

    def add(self, asset: Any, extra: Any) -> None:
        self.append((asset.name, extra))


class Partitions:
    """Airflow's outlet events of an asset."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.extra: dict[str, Any] = {}

    def add_partitions(self, keys: list[str]) -> None:
        self.keys += keys


class OutletEvents(dict[Any, Any]):
    """Airflow's outlet events by asset; an asset is there once it is asked for."""

    def __missing__(self, asset: Any) -> Partitions:
        self[asset] = Partitions()
        return self[asset]


def events_of(results: dict[str, Any]) -> dict[str, Any]:
    """A context in which tasks have returned these results."""
    from twofold.dags.operators.assets import changes_of

    instance = SimpleNamespace(xcom_pull=lambda task_ids: results.get(task_ids))
    outlets = OutletEvents({changes_of("flights"): Events()})
    return {"ti": instance, "task": SimpleNamespace(outlets=[]), "outlet_events": outlets}


def added(given: dict[str, Any]) -> dict[str, Any]:
    """Asset -> the facts of its event."""
    return dict(next(iter(given["outlet_events"].values())))


def days_of(given: dict[str, Any]) -> dict[str, list[str]]:
    """Asset -> the days that have events of their own."""
    _, *partitioned = given["outlet_events"].items()
    assert [asset for asset, _ in partitioned] == given["task"].outlets, "what is no outlet of the task has no event"
    return {asset.name: of_days.keys for asset, of_days in partitioned}


def announcement(sources: list[str], *, with_tables: bool) -> Any:
    from airflow.sdk import DAG

    from twofold.dags.operators.asset_events import AssetEventsOperator
    from twofold.dags.operators.assets import changes_of

    with DAG("flights.reconcile", schedule=None):
        return AssetEventsOperator(
            task_id="announce", sources=sources, of="flights", changes=changes_of("flights"), with_tables=with_tables
        )


def execute(task: Any, given: dict[str, Any]) -> Any:
    return type(task).execute.__wrapped__(task, given)


def test_the_domain_is_reported_once_which_tables_changed() -> None:
    results = {
        "flights.a": [report("flights.a", changed=1)],
        "flights.b": None,  # it was right, and not even started
        "flights.c": [report("flights.c"), report("flights.c", changed=9, cause="upstream")],
    }
    task, given = announcement([*results], with_tables=False), events_of(results)
    assert execute(task, given) == ["flights.a", "flights.c"]
    assert added(given) == {"flights.tables": {"tables": ["flights.a", "flights.c"]}}


def test_each_table_that_a_publication_changed_has_an_event_too() -> None:
    results = {"publish": [report("flights.a", changed=1), report("flights.c", changed=9)]}
    given = events_of(results)
    execute(announcement(["publish"], with_tables=True), given)
    assert list(added(given)) == ["flights.a", "flights.c", "flights.tables"]


def test_each_day_whose_rows_changed_has_an_event_too() -> None:
    of_a = [report("flights.a", changed=3, days=["2013-01-06", "2013-01-05"]), report("flights.a", days=["2013-01-05"])]
    given = events_of({"publish": [*of_a, report("flights.c", changed=9)]})
    execute(announcement(["publish"], with_tables=True), given)
    assert days_of(given) == {"flights.a": ["2013-01-05", "2013-01-06"]}
    assert list(added(given)) == ["flights.a", "flights.c", "flights.tables"]


def test_in_a_run_of_a_day_every_event_has_that_day_already() -> None:
    given = events_of({"publish": [report("flights.a", changed=3, days=["2013-01-05"])]})
    execute(announcement(["publish"], with_tables=True), {**given, "partition_key": "2013-01-05"})
    assert days_of(given) == {}
    assert list(added(given)) == ["flights.a", "flights.tables"]


@pytest.mark.parametrize("result", [None, [], [report("flights.a")]])
def test_where_nothing_changed_there_is_no_event(result: Any) -> None:
    given = events_of({"publish": result})
    assert execute(announcement(["publish"], with_tables=True), given) == []
    assert added(given) == {}


def test_quality_checks_what_was_announced_since_and_all_when_by_hand() -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from twofold.dags.operators.asset_events import tables_to_check
    from twofold.dags.operators.assets import domain_asset

    asset = domain_asset("flights")

    def announced(*several: list[str]) -> Any:
        events = [
            SimpleNamespace(extra={"tables": names}, timestamp=datetime(2013, 1, 1, 0, minute, tzinfo=UTC))
            for minute, names in enumerate(several)
        ]
        return {
            "task": SimpleNamespace(inlets=[asset]),
            "triggering_asset_events": {asset: events[1:2]} if events else {},
            "inlet_events": {asset: Inlet(events)},
        }

    tables = ["flights.a", "flights.b", "flights.c"]
    assert tables_to_check(announced(), tables) == tables
    assert tables_to_check(announced(["flights.b"], ["flights.c"], ["flights.a", "flights.events"]), tables) == [
        "flights.a",
        "flights.c",
    ]
    with pytest.raises(AirflowSkipException, match="no table"):
        tables_to_check(announced(["flights.a"], ["flights.events"]), tables)


class Inlet(list[Any]):
    def after(self, instant: str) -> list[Any]:
        """Those at that instant and later, as Airflow's accessor gives them."""
        return [event for event in self if event.timestamp >= datetime.fromisoformat(instant)]


def verdict(table: str, failing: int) -> dict[str, Any]:
    rules = [{"rule": "not_null(origin)", "rows": 10, "failing": failing, "observed": ""}]
    return {"table": table, "rows": 10, "rules": rules, "samples": [], "report": "/docs/index.html", "results": None}


def test_a_broken_rule_fails_the_task_of_its_table() -> None:
    from airflow.sdk import DAG
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    from twofold.dags.operators.quality_report import VerdictOperator, checked

    with DAG("flights.quality", schedule=None):
        good, bad, other = (
            VerdictOperator(task_id=n, source="check", of=f"flights.{n}") for n in ("good", "bad", "other")
        )
    verdicts = [verdict("flights.good", 0), verdict("flights.bad", 3)]
    assert checked(verdicts) == {"flights.good", "flights.bad"}
    given = {"ti": SimpleNamespace(xcom_pull=lambda task_ids: verdicts)}
    assert execute(good, given) == {"rows": 10, "rules": 1, "data_docs": "/docs/index.html"}
    with pytest.raises(AirflowFailException, match=r"flights\.bad: 3 of 10 rows break not_null\(origin\)"):
        execute(bad, given)
    with pytest.raises(AirflowSkipException):
        execute(other, given)


def test_a_failure_is_one_event(caplog: pytest.LogCaptureFixture) -> None:
    from twofold.dags.failure_log import log_failure

    instance = SimpleNamespace(dag_id="flights.reconcile", task_id="recompute", run_id="r", try_number=3)
    with caplog.at_level(logging.ERROR, logger="twofold.dags"):
        log_failure({"ti": instance, "exception": ProcessFailed("No Java.")})  # type: ignore[typeddict-item]
    [record] = caplog.records
    assert record.getMessage() == ("task_failed dag=flights.reconcile task=recompute run=r attempt=3 error='No Java.'")
