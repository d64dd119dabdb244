"""Operators that make a plan, show it to a person for approval, and publish exactly that plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException

from twofold.dags.operators.command_operator import CommandOperator
from twofold.infra import COMMAND
from twofold.infra.airflow.dag_names import APPROVE, REASON

if TYPE_CHECKING:
    from airflow.sdk import Context

    from twofold.dags.operators.managed_subprocess import Ended

PREVIEW, PUBLISH = "preview", "publish"
"""The tasks of each DAG that rewrites history, before `APPROVE` and after it."""
UNCHANGED = "Nothing would change: there was nothing to publish."
_PLAN = "plan"
LONGEST_REASON = 500
"""Characters."""
_LINES = 60  # of a plan on the page of an approval; `twofold plans` has all


class PlanOperator(CommandOperator):
    """Runs a command that makes a plan; its result has the plan's id and its text.

    If nothing would change, downstream tasks succeed without being started.
    """

    def execute(self, context: Context) -> object:
        plan: Any = self.run_in(context)
        if not plan["tables"]:
            self.let_succeed(context, self.get_flat_relative_ids(), UNCHANGED)
        return plan

    def judge(self, command: str, ended: Ended) -> object:
        document = super().judge(command, ended)
        if not (isinstance(document, Mapping) and {"plan", "markdown"} <= set(document)):
            raise TypeError(f"{COMMAND} {command} printed no plan: {document!r}")
        plan, text = document["plan"], str(document["markdown"])
        self.log.info("%s", text)
        lines = text.splitlines()
        more = [f"\nAll of it: `{COMMAND} plans {plan['id']}`"] if len(lines) > _LINES else []
        text = "\n".join([*lines[:_LINES], *more])
        return {
            "id": plan["id"],
            "tables": len(plan["changes"]),
            "changed": document["changed"],
            "asks": plan["asks"],
            "markdown": text,
        }


class Approval(ApprovalOperator):
    """Waits until a person approves, with a reason, or rejects what its body shows."""

    def __init__(self, **settings: Any) -> None:
        about = f"Why it is right: to approve it takes a reason of up to {LONGEST_REASON} characters. Airflow keeps it."
        reason = Param("", title="Reason", type=["null", "string"], description=about)
        # Airflow hands the params of the DAG to each constructor, and adds them again in the next.
        super().__init__(**{**settings, "task_id": APPROVE, "params": {REASON: reason}})

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Ends the wait; fails without a retry if it was approved without a reason, which Airflow does not check."""
        if self.APPROVE in event.get("chosen_options", ()) and not is_reason(event["params_input"]):
            raise AirflowFailException(
                f"It was approved without a reason of 1 to {LONGEST_REASON} characters: nothing was done. Clear this "
                "task, and Airflow asks again."
            )
        return super().execute_complete(context, event)

    def process_trigger_event_error(self, event: dict[str, Any]) -> None:
        """Fails without a retry if the approval times out: a retry would ask about what was shown long ago."""
        if event["error_type"] == "timeout":
            raise AirflowFailException("No person has answered in time: nothing was done. Start the DAG again.")
        super().process_trigger_event_error(event)


def is_reason(given: object) -> bool:
    """Whether what a person has filled in is a reason and nothing else."""
    reason = given.get(REASON) if isinstance(given, Mapping) and set(given) == {REASON} else None
    return isinstance(reason, str) and 0 < len(reason.strip()) <= LONGEST_REASON


class PlanApproval(Approval):
    """Waits until a person approves or rejects the plan; without an approval nothing is published.

    It approves the plan itself if the run was started without *Ask first*, or if the tables declare that so few rows
    need no approval.
    """

    def __init__(self, **settings: Any) -> None:
        plan = f"ti.xcom_pull(task_ids={PREVIEW!r})"
        super().__init__(
            subject=f"Publish {{{{ {plan}['changed'] }}}} changed rows ({{{{ {plan}['id'] }}}})?",
            body=f"{{{{ {plan}['markdown'] }}}}\n\n"
            "- **Approve**: exactly these rows are published, each table in one commit that "
            f"`{COMMAND} rollback` takes back. Refused when rows or code have changed by then.\n"
            "- **Reject**: nothing is done.",
            **settings,
        )

    def execute(self, context: Context) -> Any:
        plan = context["ti"].xcom_pull(task_ids=PREVIEW)
        # The plan in question, even if another run of the preview makes a new one before the answer.
        context["ti"].xcom_push(_PLAN, plan["id"])
        if plan["asks"] and context["params"].get("ask", True):
            return super().execute(context)
        why = "as the run was started" if plan["asks"] else "as the table declares"
        self.log.info("Approved without asking, %s.", why)
        return {"chosen_options": [self.APPROVE], "responded_by_user": {"name": f"Airflow, {why}"}}


def published_plan(context: Context) -> list[str]:
    """Returns `PLAN --approved-by NAME --because=REASON` of the shown plan and the person who approved it."""
    pull = context["ti"].xcom_pull
    answer = pull(task_ids=APPROVE) or {}
    person, reason = answer.get("responded_by_user") or {}, (answer.get("params_input") or {}).get(REASON)
    because = [f"--because={reason.strip()}"] if reason else []
    return [str(pull(task_ids=APPROVE, key=_PLAN)), "--approved-by", str(person.get("name") or "Airflow"), *because]
