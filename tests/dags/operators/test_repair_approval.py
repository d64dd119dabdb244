"""Unexplained differences are shown to a person, and exactly the rows that were shown are overwritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from dags.operators.repair_approval import ExamineOperator, RepairApproval, format_rows, repair_arguments
from infra.errors import BadArgument

if TYPE_CHECKING:
    from airflow.sdk import Context

FOUND = """
import json, sys
rows = [{"key": {"origin": "JFK"}, "change": "update", "before": {"flights": 99}, "should": {"flights": 3}}] * 2
print(json.dumps({"error": "flights.x: 2 rows differ", "kind": "UnexplainedDifference", "hint": "",
                  "retryable": False, "facts": {"rows": {"flights.x": 2}, "digests": {"flights.x": "d1"},
                                                "differences": {"flights.x": rows}}}))
sys.exit(1)
"""
RIGHT = "print('[]')"
BROKEN = """
import json, sys
print(json.dumps({"error": "no such table", "kind": "BadArgument", "hint": "", "retryable": False, "facts": {}}))
sys.exit(2)
"""


def examined(stand_in: Callable[[str], None], script: str) -> Any:
    stand_in(script)
    return ExamineOperator(task_id="examine", command="reconcile", arguments=["flights.x", "--verify"]).execute({})


class Instance:
    def xcom_pull(self, task_ids: str) -> dict[str, Any]:
        if task_ids == "approve":
            return {"chosen_options": ["Approve"], "responded_by_user": {"id": "7", "name": "ada"}}
        return {"rows": 2, "digest": "d1", "differences": f"of {task_ids}"}


def context(table: str) -> Context:
    return {"ti": Instance(), "params": {"table": table}}  # type: ignore[typeddict-item, return-value]


def test_the_rows_that_nothing_explains_are_the_result_of_the_examination(stand_in: Callable[[str], None]) -> None:
    found = examined(stand_in, FOUND)
    assert found == {
        "rows": 2,
        "digest": "d1",
        "differences": found["differences"],
        "why": "./twofold why flights.x origin=JFK",
    }
    assert found["differences"].splitlines()[2:] == ["| origin=JFK | flights | 99 | 3 |"] * 2


def test_a_person_sees_what_is_missing_what_is_too_much_and_what_differs() -> None:
    rows = [
        {"key": {"a": 1, "b": "x y"}, "change": "update", "before": {"n": None}, "should": {"n": "p|q"}},
        {"key": {"a": 2}, "change": "insert", "before": {}, "should": {"n": 5, "m": None}},
        {"key": {"a": 3}, "change": "delete", "before": {"n": 6}, "should": {}},
    ]
    assert format_rows(rows, 3).splitlines()[2:] == [
        "| a=1 b='x y' | n | *nothing* | p\\|q |",
        "| a=2 | n | *missing* | 5 |",
        "| a=2 | m | *missing* | *nothing* |",
        "| a=3 | | there | not there |",
    ]
    assert format_rows(rows * 10, 5_000).splitlines()[-1] == "The first 20 of 5,000 rows."


def test_where_every_row_is_explained_no_approval_is_asked(stand_in: Callable[[str], None]) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    with pytest.raises(AirflowSkipException, match="nothing to repair"):
        examined(stand_in, RIGHT)


def test_an_examination_that_fails_otherwise_fails_its_task(stand_in: Callable[[str], None]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="no such table"):
        examined(stand_in, BROKEN)


def test_a_person_sees_the_table_and_its_rows() -> None:
    approve = RepairApproval(task_id="approve", source="examine")
    assert "{{ params.table }}" in approve.subject
    assert "ti.xcom_pull(task_ids='examine')['differences']" in (approve.body or "")


def test_exactly_the_rows_that_were_shown_are_overwritten() -> None:
    tables = ["flights.x"]
    assert repair_arguments(context("flights.x"), "examine", tables) == [
        "flights.x",
        "--repair",
        "--yes",
        "--digest",
        "d1",
        "--approved-by",
        "ada",
    ]
    with pytest.raises(BadArgument):
        repair_arguments(context("--verify"), "examine", tables)
