"""A table's task of the audit fails for what was found of that table, and says when all was well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from twofold.dags.operators.audit_report import LogAuditOperator, TableAuditOperator, TopicAuditOperator, audited_topics

if TYPE_CHECKING:
    from airflow.sdk import Context

RIGHT = {
    "table": "flights.x",
    "run": "audit-1",
    "turn": 3,
    "of": 20,
    "rows": 97,
    "buckets": 9,
    "excused": 1,
    "unfound": 0,
    "skipped": "",
}
DAMAGED = {
    **RIGHT,
    "table": "flights.y",
    "unexplained": 2,
    "differences": [{"key": {"origin": "JFK", "hour": "2013-01-05T14:00:00+00:00"}, "change": "update"}],
}
CHANGED = {
    "table": "flights.z",
    "skipped": "flights.z: its rows were computed by the definition a.",
    "hint": "`./twofold backfill flights.z` accepts it.",
}
BLANK = {**RIGHT, "table": "flights.w", "rows": 0, "buckets": 0, "unexplained": 0, "differences": []}
WHOLE = {"topic": "flights.a", "partitions": [{"events": 4}, {"events": 3}], "faults": []}
TORN = {"topic": "flights.b", "partitions": [], "faults": ["flights.b, partition 0, [0, 9): 1 missing offsets"]}

SIDES = {"archive_alone": 2, "both": 3, "broker_alone": 1, "in_transactions": 0, "lost": 0}
LOG = {"topic": "flights.a", "records": 6, "blocks": 1, "versions": [4, 2], "sides": SIDES, "faults": []}


def context_with(*topics: dict[str, Any]) -> Context:
    report = {
        "tables": [RIGHT | {"unexplained": 0, "differences": []}, DAMAGED, CHANGED, BLANK],
        "topics": list(topics),
        "logs": [LOG, LOG | {"topic": "flights.b", "faults": ["no record has the offsets of partition 0 [5, 6)"]}],
    }

    class Instance:
        def xcom_pull(self, task_ids: str) -> dict[str, Any]:
            assert task_ids == "look"
            return report

    return {"ti": Instance()}  # type: ignore[typeddict-item, return-value]


def test_a_table_without_a_row_to_compare_is_skipped() -> None:
    with pytest.raises(AirflowSkipException, match=r"flights\.w: nothing was compared"):
        TableAuditOperator(task_id="w", source="look", of="flights.w").execute(context_with())


def test_a_table_that_is_right_says_which_share_of_it_was_looked_at() -> None:
    found = TableAuditOperator(task_id="x", source="look", of="flights.x").execute(context_with())
    assert found == {name: RIGHT[name] for name in ("run", "turn", "of", "rows", "buckets", "excused")}


def test_a_damaged_table_fails_with_its_rows_and_the_others_do_not() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"flights\.y: 2 rows differ .* origin=JFK hour=2013-01-05T14"):
        TableAuditOperator(task_id="y", source="look", of="flights.y").execute(context_with())


def test_a_table_whose_definition_changed_fails_alone() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"flights\.z: its rows were computed by the definition a\."):
        TableAuditOperator(task_id="z", source="look", of="flights.z").execute(context_with())


def test_the_log_fails_where_a_topic_has_a_fault() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    assert LogAuditOperator(task_id="log", source="look", of="flights").execute(context_with(WHOLE)) == {"flights.a": 7}
    with pytest.raises(AirflowFailException, match="1 missing offsets"):
        LogAuditOperator(task_id="log", source="look", of="flights").execute(context_with(WHOLE, TORN))


def test_a_topic_that_is_right_says_who_has_its_records() -> None:
    found = TopicAuditOperator(task_id="a", source="look", of="flights.a").execute(context_with())
    assert found == {"records": 6, "blocks": 1, "versions": [4, 2], **SIDES}


def test_a_topic_with_a_fault_fails_and_an_unaudited_one_does_not() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"flights\.b: no record has the offsets of partition 0 \[5, 6\)"):
        TopicAuditOperator(task_id="b", source="look", of="flights.b").execute(context_with())
    assert audited_topics({"logs": [LOG]}) == ["flights.a"]
