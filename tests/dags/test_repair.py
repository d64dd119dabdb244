"""Unexplained differences are shown to a person, and no more rows are overwritten than were shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from dags.repair import ExamineOperator, RepairApproval, repair_arguments
from infra.errors import BadArgument

if TYPE_CHECKING:
    from airflow.sdk import Context

FOUND = """
import json, sys
rows = [{"key": {"origin": "JFK"}, "change": "update", "before": {"flights": 99}, "should": {"flights": 3}}] * 2
print(json.dumps({"error": "flights.x: 2 rows differ", "kind": "UnexplainedDifference", "hint": "",
                  "retryable": False, "facts": {"differences": {"flights.x": rows}}}))
sys.exit(1)
"""
RIGHT = "print('[]')"
BROKEN = """
import json, sys
print(json.dumps({"error": "no such table", "kind": "BadArgument", "hint": "", "retryable": False, "facts": {}}))
sys.exit(2)
"""


def examined(stand_in: Callable[[str], None], script: str) -> object:
    stand_in(script)
    return ExamineOperator(task_id="examine", command="reconcile", arguments=["flights.x", "--verify"]).execute({})


class Instance:
    def xcom_pull(self, task_ids: str) -> dict[str, Any]:
        return {"rows": 2, "told": f"of {task_ids}"}


def context(table: str) -> Context:
    return {"ti": Instance(), "params": {"table": table}}  # type: ignore[typeddict-item, return-value]


def test_the_rows_that_nothing_explains_are_the_result_of_the_examination(stand_in: Callable[[str], None]) -> None:
    assert examined(stand_in, FOUND) == {"rows": 2, "told": "flights.x: 2 rows differ"}


def test_where_every_row_is_explained_nobody_is_asked(stand_in: Callable[[str], None]) -> None:
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
    assert "ti.xcom_pull(task_ids='examine')['told']" in (approve.body or "")


def test_no_more_rows_are_overwritten_than_were_shown() -> None:
    tables = ["flights.x"]
    assert repair_arguments(context("flights.x"), "examine", tables) == [
        "flights.x",
        "--repair",
        "--yes",
        "--at-most",
        "2",
    ]
    with pytest.raises(BadArgument):
        repair_arguments(context("--verify"), "examine", tables)
