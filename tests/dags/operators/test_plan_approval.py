"""A plan is shown to a person, and exactly it is published."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from twofold.dags.operators.plan_approval import Approval, PlanApproval, PlanOperator, published_plan

FOUND: dict[str, Any] = {
    "plan": {"id": "repair-1-abc", "changes": [{}], "asks": True},
    "changed": 1200,
    "markdown": "1,200 rows",
}


def planned(stand_in: Callable[[str], None], document: object, context: Any = None) -> Any:
    stand_in(f"print({json.dumps(json.dumps(document))})")
    operator = PlanOperator(task_id="preview", command="backfill", arguments=["flights.x", "--preview"])
    return operator.execute(context or {})


class Instance:
    def __init__(self, answer: dict[str, Any] | None) -> None:
        self.answer = answer
        self.asks = True
        self.plan = "repair-1-abc"
        self.pushed: dict[str, str] = {}

    def xcom_push(self, key: str, value: str) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
        if task_ids == "approve":
            return self.answer if key == "return_value" else self.pushed[key]
        return {"id": self.plan, "asks": self.asks}


def test_the_result_is_the_plan_and_its_text(stand_in: Callable[[str], None]) -> None:
    assert planned(stand_in, FOUND) == {
        "id": "repair-1-abc",
        "changed": 1200,
        "asks": True,
        "markdown": "1,200 rows",
        "tables": 1,
    }


def test_a_long_text_is_cut_and_says_where_all_of_it_is(stand_in: Callable[[str], None]) -> None:
    text = planned(stand_in, {**FOUND, "markdown": "\n".join(map(str, range(1_000)))})["markdown"]
    assert len(text.splitlines()) == 62
    assert text.endswith("All of it: `./twofold plans repair-1-abc`")


def test_where_nothing_would_change_the_run_ends_with_the_preview(
    stand_in: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []
    monkeypatch.setattr(PlanOperator, "let_succeed", lambda _, context, tasks, note: ended.append((context, note)))
    context = {"run_id": "manual__1"}
    unchanged = planned(stand_in, {**FOUND, "plan": {"id": "x", "changes": [], "asks": False}, "changed": 0}, context)
    assert (unchanged["tables"], unchanged["asks"]) == (0, False), "what is started all the same asks for no approval"
    assert ended == [(context, "Nothing would change: there was nothing to publish.")]


def test_a_command_that_prints_no_plan_is_a_mistake(stand_in: Callable[[str], None]) -> None:
    with pytest.raises(TypeError, match="printed no plan"):
        planned(stand_in, [])


@pytest.mark.parametrize(
    ("answer", "by"),
    [
        (
            {"responded_by_user": {"id": "7", "name": "ada"}, "params_input": {"because": " --it is 'right' "}},
            ["ada", "--because=--it is 'right'"],
        ),
        ({"responded_by_user": {"id": "7", "name": "ada"}, "params_input": {}}, ["ada"]),
        (None, ["Airflow"]),
    ],
)
def test_exactly_the_plan_that_was_shown_is_published(answer: dict[str, Any] | None, by: list[str]) -> None:
    instance = Instance(answer)
    context: Any = {"ti": instance, "params": {"ask": False}}
    PlanApproval().execute(context)
    instance.plan = "repair-2-def"  # the preview was run again before the answer
    assert published_plan(context) == ["repair-1-abc", "--approved-by", *by]


def event(option: str, given: object) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {"chosen_options": [option], "params_input": given, "responded_at": now, "responded_by_user": {"name": "a"}}


@pytest.mark.parametrize(
    "given",
    [None, {}, {"because": ""}, {"because": " \n\t"}, {"because": None}, {"because": 7}, {"because": ["x"]},
     {"reason": "x"}, {"because": "x" * 501}, {"because": "x", "more": "y"}, "reason"],
)  # fmt: skip
@pytest.mark.parametrize("kind", [Approval, PlanApproval])
def test_an_approval_without_a_reason_does_nothing(kind: Callable[..., Approval], given: object) -> None:
    """Airflow passes on whatever was sent: its form and its API check none of it."""
    from airflow.sdk.exceptions import AirflowFailException

    shown = {"subject": "?"} if kind is Approval else {}
    with pytest.raises(AirflowFailException, match="without a reason"):
        kind(**shown).execute_complete({}, event("Approve", given))  # type: ignore[typeddict-item]


def test_an_approval_with_a_reason_goes_on_and_a_rejection_needs_none() -> None:
    answer = PlanApproval().execute_complete({}, event("Approve", {"because": "it is right"}))  # type: ignore[typeddict-item]
    assert answer["params_input"] == {"because": "it is right"}
    for given in ({}, {"because": ""}, {"because": None}):
        rejected = PlanApproval().execute_complete({}, event("Reject", given))  # type: ignore[typeddict-item]
        assert rejected["chosen_options"] == ["Reject"]


@pytest.mark.parametrize(
    ("ask", "asks", "who"),
    [(False, True, "Airflow, as the run was started"), (True, False, "Airflow, as the table declares")],
)
def test_what_needs_no_approval_is_approved_by_itself(ask: bool, asks: bool, who: str) -> None:
    instance = Instance(None)
    instance.asks = asks
    answer = PlanApproval().execute({"params": {"ask": ask}, "ti": instance})  # type: ignore[typeddict-item]
    assert (answer["chosen_options"], answer["responded_by_user"]["name"]) == (["Approve"], who)


def test_an_approval_that_is_not_given_in_time_is_not_asked_for_again() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="nothing was done"):
        PlanApproval().execute_complete({}, {"error": "timed out", "error_type": "timeout"})  # type: ignore[typeddict-item]


def test_the_page_says_what_takes_a_publication_back() -> None:
    approval = PlanApproval()
    assert "./twofold rollback" in approval.body
    assert "ti.xcom_pull(task_ids='preview')['markdown']" in approval.body
