"""The task of a table reconciles it, and says what it did."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dags.operators.test_asset_events import added, events_of, execute, report
from twofold.dags.operators.command_report import read_reports
from twofold.infra.errors import ProcessFailed


def table_task(monkeypatch: pytest.MonkeyPatch, results: dict[str, Any]) -> Any:
    """The task of flights.a; the command reports for each table what `results` has."""
    from airflow.sdk import DAG

    from twofold.dags.operators.assets import changes_of
    from twofold.dags.operators.table_work import ReconcileOperator

    monkeypatch.setattr(ReconcileOperator, "run", lambda self, arguments: results[arguments[1]])
    with DAG("flights.reconcile", schedule=None):
        return ReconcileOperator(task_id="flights.a", of="flights.a", changes=changes_of("flights"))


def test_a_corrected_table_has_an_event_of_its_asset(monkeypatch: pytest.MonkeyPatch) -> None:
    late, upstream = report("flights.a", changed=6), report("flights.a", cause="upstream")
    task, given = table_task(monkeypatch, {"flights.a": [late, upstream]}), events_of({"look": ["flights.a"]})
    assert execute(task, given) == [late, upstream]
    assert added(given) == {"flights.a": {"changed": 6, "cause": "late, upstream", "version": 7, "run": "run-1"}}


def test_the_log_says_what_was_late_and_which_rows_changed() -> None:
    from twofold.dags.operators.table_work import lines_of

    counts = {"changed": 6, "updated": 6, "touched": 2, "scopes": 3, "corrected": ["origin=JFK: flights 3 -> 4"]}
    late, upstream = report("flights.a", **counts), report("flights.a", cause="upstream", pending=2)
    assert list(lines_of(read_reports([late, upstream]))) == [
        "late: 2 input rows were late or changed; 3 groups of rows recomputed.",
        "6 rows changed (+0 -0 ~6), version 6 to 7, run run-1.",
        "origin=JFK: flights 3 -> 4",
        "upstream: 0 input rows were late or changed; 0 groups of rows recomputed.",
        "2 groups have rows that are still open; they are looked at again once these close.",
    ]
    assert list(lines_of(read_reports([report("flights.a")])))[1:] == [
        "Everything was right: nothing had to be corrected."
    ]


def test_a_table_that_was_right_succeeds_without_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    task, given = table_task(monkeypatch, {"flights.a": [report("flights.a")]}), events_of({"look": ["flights.a"]})
    execute(task, given)
    assert added(given) == {}


def test_after_a_verification_of_all_tables_each_only_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = report("flights.a", changed=1, updated=1), report("flights.b", changed=5)
    task, given = table_task(monkeypatch, {}), events_of({"look": [mine, other]})
    assert execute(task, given) == [mine]
    assert added(given)["flights.a"]["changed"] == 1


def test_an_unexplained_difference_fails_the_task_of_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    task = table_task(monkeypatch, {"flights.a": [report("flights.a", unexplained=2, changed=1)]})
    with pytest.raises(AirflowFailException, match=r"flights\.a: 2 rows differ"):
        execute(task, events_of({"look": ["flights.a"]}))


@pytest.mark.parametrize("document", [{"error": "x"}, [{"table": "flights.a"}]])
def test_a_result_of_another_form_is_refused(monkeypatch: pytest.MonkeyPatch, document: Any) -> None:
    with pytest.raises(ProcessFailed, match="no list of objects with table"):
        execute(table_task(monkeypatch, {"flights.a": document}), events_of({"look": ["flights.a"]}))


def test_tables_that_are_named_or_changed_or_wrong_have_work() -> None:
    from twofold.dags.operators.table_work import with_work

    behind = {"announce", "all_right"}
    assert with_work(["flights.a", "flights.b"]) == {"flights.a", "flights.b"} | behind
    right, wrong = report("flights.b"), report("flights.c", unexplained=2)
    assert with_work([report("flights.a", changed=1), right, wrong]) == {"flights.a", "flights.c"} | behind
    assert with_work([right]) == with_work([]) == set()
