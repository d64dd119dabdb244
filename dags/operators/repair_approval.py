"""Operators that show unexplained differences to a person for approval."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowSkipException

from dags.operators.command_operator import CommandOperator
from dags.operators.params import table_argument

if TYPE_CHECKING:
    from airflow.sdk import Context

    from dags.operators.managed_subprocess import Ended

_UNEXPLAINED = "UnexplainedDifference"
APPROVE = "approve"
"""The task at which a person is asked."""
_SHOWN = 20  # rows on the page of an approval


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
        [(table, total)] = document["facts"]["rows"].items()
        self.log.info("unexplained rows=%d", total)
        why = f"./twofold why {table} {_row(rows[0])}"
        digest = document["facts"]["digests"][table]
        return {"rows": total, "digest": digest, "differences": format_rows(rows, total), "why": why}


class RepairApproval(ApprovalOperator):
    """Waits until a person says whether the rows shall be overwritten; without an approval nothing is."""

    def __init__(self, *, source: str, **settings: Any) -> None:
        examined = f"ti.xcom_pull(task_ids='{source}')"
        rows = f"{{{{ {examined}['rows'] }}}} row{{{{ '' if {examined}['rows'] == 1 else 's' }}}}"
        super().__init__(
            subject=f"Overwrite {rows} of {{{{ params.table }}}}?",
            body=f"No late record, replay or corrected input explains the rows of {rows} of "
            f"`{{{{ params.table }}}}`:\n\n{{{{ {examined}['differences'] }}}}\n\n"
            f"Find out first who wrote that: `{{{{ {examined}['why'] }}}}`\n\n"
            "- **Approve**: exactly these rows are overwritten with what a recomputation from the log says. The "
            "ledger keeps each as it was and as it became, under the cause `repair`.\n"
            "- **Reject**: nothing is done. Reconcile goes on to report them.",
            **settings,
        )


def repair_arguments(context: Context, source: str, tables: Sequence[str]) -> list[str]:
    """`TABLE --repair --yes` of exactly the rows that were shown to the person who approved, and that person."""
    return [table_argument(context["params"], tables), "--repair", "--yes", *approved(context, source)]


def approved(context: Context, source: str) -> list[str]:
    """`--digest HEX --approved-by NAME`: what a person was shown by the task `source`, and who said yes to it."""
    pull = context["ti"].xcom_pull
    person = (pull(task_ids=APPROVE) or {}).get("responded_by_user") or {}
    return ["--digest", str(pull(task_ids=source)["digest"]), "--approved-by", str(person.get("name") or "Airflow")]


def format_rows(rows: Sequence[Mapping[str, Any]], total: int) -> str:
    """The first of so many rows that differ, as a table in Markdown: a line per column that is not as it should be."""
    lines = ["| row | column | is | should be |", "|---|---|---|---|"]
    for row in rows[:_SHOWN]:
        before, should = row["before"], row["should"]
        if row["change"] == "delete":
            lines.append(f"| {_cell(_row(row))} | | there | not there |")
        for column, value in should.items():
            is_now = "*missing*" if row["change"] == "insert" else _cell(before[column])
            lines.append(f"| {_cell(_row(row))} | {column} | {is_now} | {_cell(value)} |")
    if total > _SHOWN:
        lines.append(f"\nThe first {_SHOWN} of {total:,} rows.")
    return "\n".join(lines)


def _row(row: Mapping[str, Any]) -> str:
    return " ".join(f"{column}={shlex.quote(str(value))}" for column, value in row["key"].items())


def _cell(value: object) -> str:
    return "*nothing*" if value is None else str(value).replace("|", "\\|")
