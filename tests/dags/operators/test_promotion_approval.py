"""A rebuilt table is shown to a person and promoted only as it was shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dags.operators.promotion_approval import CompareOperator, PromotionApproval, promotion_arguments

EQUAL: dict[str, Any] = {
    "table": "flights.x",
    "rows": 1200,
    "missing": 0,
    "extra": 0,
    "changed": 0,
    "new_columns": [],
    "gone_columns": [],
    "examples": [],
    "is_equal": True,
}
DIFFERENT: dict[str, Any] = {
    **EQUAL,
    "missing": 2,
    "changed": 1,
    "new_columns": ["share"],
    "digest": "d3",
    "examples": [{"key": {"origin": "JFK"}, "change": "update", "before": {"n": 9}, "should": {"n": 3}}],
    "is_equal": False,
}


def compared(stand_in: Callable[[str], None], found: dict[str, Any]) -> Any:
    stand_in(f"print({json.dumps(json.dumps({'comparison': found, 'promoted': None}))})")
    return CompareOperator(task_id="compare", command="rebuild", arguments=["flights.x"]).execute({})


def test_a_person_sees_how_the_tables_differ(stand_in: Callable[[str], None]) -> None:
    found = compared(stand_in, DIFFERENT)
    assert found["digest"] == "d3"
    assert found["differences"].splitlines() == [
        "- 1,200 rows were compared",
        "- 2 are missing in the live table",
        "- 1 are different",
        "- new columns: share",
        "",
        "| row | column | is | should be |",
        "|---|---|---|---|",
        "| origin=JFK | n | 9 | 3 |",
    ]


def test_where_the_log_gives_the_same_again_no_approval_is_asked(stand_in: Callable[[str], None]) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    with pytest.raises(AirflowSkipException, match="1,200 rows are what the log gives again"):
        compared(stand_in, EQUAL)


def test_exactly_the_rows_that_were_shown_are_promoted() -> None:
    class Instance:
        def xcom_pull(self, task_ids: str) -> dict[str, Any] | None:
            return None if task_ids == "approve" else {"digest": "d3", "differences": task_ids}

    context: Any = {"ti": Instance(), "params": {"table": "flights.x"}}
    assert promotion_arguments(context, "compare", ["flights.x"]) == [
        *("flights.x", "--promote", "--digest", "d3", "--approved-by", "Airflow")
    ]


def test_the_page_says_what_takes_a_promotion_back() -> None:
    approval = PromotionApproval(task_id="approve", source="compare")
    assert "rollback {{ params.table }}" in approval.body
    assert "ti.xcom_pull(task_ids='compare')['differences']" in approval.body
