"""The operators that bring unexplained differences before a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowSkipException

from dags.arguments import table_argument
from dags.command import CommandOperator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from airflow.sdk import Context

    from dags.child import Ended

_UNEXPLAINED = "UnexplainedDifference"


class ExamineOperator(CommandOperator):
    """Verifies a table; its result says which rows nothing explains. Is skipped when there are none."""

    def judge(self, command: str, ended: Ended) -> object:
        document = ended.document
        if not (ended.code and isinstance(document, Mapping) and document.get("kind") == _UNEXPLAINED):
            super().judge(command, ended)
            raise AirflowSkipException("Every row is explained: nothing to repair.")
        rows = [row for several in document["facts"]["differences"].values() for row in several]
        if not rows:  # a write past the platform that changed nothing: there is nothing to overwrite
            super().judge(command, ended)
        self.log.info("unexplained rows=%d", len(rows))
        return {"rows": len(rows), "told": document["error"]}


class RepairApproval(ApprovalOperator):
    """Waits until a person says whether the rows shall be overwritten; without an approval nothing is."""

    def __init__(self, *, source: str, **settings: Any) -> None:
        examined = f"ti.xcom_pull(task_ids='{source}')"
        super().__init__(
            subject=f"Overwrite {{{{ {examined}['rows'] }}}} rows of {{{{ params.table }}}}?",
            body=f"{{{{ {examined}['told'] }}}}\n\n"
            "No late record, replay or corrected input explains these rows. Approved, they are overwritten with what "
            "a recomputation says, and the ledger keeps both, under the cause `repair`. Find out first who wrote them: "
            "`./twofold why` tells.",
            **settings,
        )


def repair_arguments(context: Context, source: str, tables: Sequence[str]) -> list[str]:
    """`TABLE --repair --yes --at-most N`: no more rows than were shown to the person who approved."""
    rows = int(context["ti"].xcom_pull(task_ids=source)["rows"])
    return [table_argument(context["params"], tables), "--repair", "--yes", "--at-most", str(rows)]
