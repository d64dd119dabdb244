"""What the tasks behind a command make of its report."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from infra.errors import ProcessFailed


def report(table: str, **facts: Any) -> dict[str, Any]:
    counts = ("touched", "scopes", "pending", "inserted", "updated", "deleted", "changed", "unexplained")
    versions = {"version_before": 6, "version_after": 7}
    return {"table": table, "cause": "late", "run": "run-1", **dict.fromkeys(counts, 0), **versions, **facts}


class Events(dict[Any, Any]):
    """Airflow's outlet events: whatever asset is asked for has one."""

    def __missing__(self, asset: Any) -> Any:
        return self.setdefault(asset, SimpleNamespace(extra={}, added=[], add=None))


def context(document: Any, **more: Any) -> dict[str, Any]:
    return {"ti": SimpleNamespace(xcom_pull=lambda task_ids: document), "outlet_events": Events(), **more}


def table_task(table: str) -> Any:
    from airflow.sdk import DAG

    from dags.operators.asset_events import TableOperator

    with DAG("flights.reconcile", schedule=None):
        return TableOperator(task_id=table, source="recompute", of=table)


def execute(task: Any, given: dict[str, Any]) -> Any:
    return type(task).execute.__wrapped__(task, given)


def test_a_corrected_table_reports_what_changed() -> None:
    from dags.operators.assets import table_asset

    given = context([report("flights.flights", changed=4), report("flights.flights", changed=1, cause="upstream")])
    execute(table_task("flights.flights"), given)
    told = given["outlet_events"][table_asset("flights.flights")].extra
    assert told == {"changed": 5, "cause": "late, upstream", "version": 7, "run": "run-1"}


@pytest.mark.parametrize("document", [[], [report("flights.flights"), report("flights.carrier_days", changed=2)]])
def test_a_table_that_was_right_is_skipped_and_reports_nothing(document: Any) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    given = context(document)
    with pytest.raises(AirflowSkipException, match="nothing changed"):
        execute(table_task("flights.flights"), given)
    assert given["outlet_events"] == {}


def test_an_unexplained_difference_fails_the_task_of_its_table() -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    document = [report("flights.flights", unexplained=2, changed=1), report("flights.carrier_days")]
    with pytest.raises(AirflowFailException, match=r"flights\.flights: 2 rows differ"):
        execute(table_task("flights.flights"), context(document))
    with pytest.raises(AirflowSkipException):
        execute(table_task("flights.carrier_days"), context(document))


def test_the_domain_is_reported_once_which_tables_changed() -> None:
    from airflow.sdk import DAG

    from dags.operators.asset_events import AssetEventsOperator
    from dags.operators.assets import domain_asset

    with DAG("flights.reconcile", schedule=None):
        task = AssetEventsOperator(task_id="announce", source="recompute", of="flights")
    given = context([report("flights.a", changed=1), report("flights.b"), report("flights.c", changed=9)])
    assert execute(task, given) == ["flights.a", "flights.c"]
    assert given["outlet_events"][domain_asset("flights")].extra == {"tables": ["flights.a", "flights.c"]}


def test_tables_that_changed_or_are_wrong_have_a_result() -> None:
    from dags.operators.asset_events import telling

    right = report("flights.b")
    assert telling([report("flights.a", changed=1), right, report("flights.c", unexplained=2)]) == {
        "flights.a",
        "flights.c",
        "announce",
    }
    assert telling([right, report("flights.c", unexplained=2)]) == {"flights.c"}
    assert telling([right]) == set()


def test_quality_checks_what_was_announced_since_and_all_when_by_hand() -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from dags.operators.asset_events import tables_to_check
    from dags.operators.assets import domain_asset

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


@pytest.mark.parametrize("document", [None, {"error": "x"}, [{"table": "flights.flights"}]])
def test_a_result_of_another_form_is_refused(document: Any) -> None:
    with pytest.raises(ProcessFailed, match="no list of objects with table"):
        execute(table_task("flights.flights"), context(document))


def verdict(table: str, failing: int) -> dict[str, Any]:
    rules = [{"rule": "not_null(origin)", "rows": 10, "failing": failing, "observed": ""}]
    return {"table": table, "rows": 10, "rules": rules, "samples": [], "report": "/docs/index.html", "results": None}


def test_a_broken_rule_fails_the_task_of_its_table() -> None:
    from airflow.sdk import DAG
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    from dags.operators.quality_report import VerdictOperator, checked

    with DAG("flights.quality", schedule=None):
        good, bad, other = (
            VerdictOperator(task_id=n, source="check", of=f"flights.{n}") for n in ("good", "bad", "other")
        )
    verdicts = [verdict("flights.good", 0), verdict("flights.bad", 3)]
    assert checked(verdicts) == {"flights.good", "flights.bad"}
    given = context(verdicts)
    assert execute(good, given) == {"rows": 10, "rules": 1, "data_docs": "/docs/index.html"}
    with pytest.raises(AirflowFailException, match=r"flights\.bad: 3 of 10 rows break not_null\(origin\)"):
        execute(bad, given)
    with pytest.raises(AirflowSkipException):
        execute(other, given)


def test_a_failure_is_one_event(caplog: pytest.LogCaptureFixture) -> None:
    from dags.failure_log import log_failure

    instance = SimpleNamespace(dag_id="flights.reconcile", task_id="recompute", run_id="r", try_number=3)
    with caplog.at_level(logging.ERROR, logger="twofold.dags"):
        log_failure({"ti": instance, "exception": ProcessFailed("No Java.")})  # type: ignore[typeddict-item]
    [record] = caplog.records
    assert record.getMessage() == ("task_failed dag=flights.reconcile task=recompute run=r attempt=3 error='No Java.'")
