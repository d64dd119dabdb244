"""Operator that reports the quality check of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from twofold.dags.operators.report_task import ReportOperator
from twofold.infra.errors import QualityFailed

if TYPE_CHECKING:
    from airflow.sdk import Context


class VerdictOperator(ReportOperator):
    """Fails if a rule of the table is broken; is skipped if the table was not checked."""

    def execute(self, context: Context) -> dict[str, Any]:
        verdicts = [v for v in self.reported(context) or [] if v["table"] == self.of]
        if not verdicts:
            raise AirflowSkipException(f"{self.of} was not checked: no run changed it.")
        verdict = verdicts[-1]
        broken = [rule for rule in verdict["rules"] if rule["failing"]]
        self.log.info(
            "quality table=%s rows=%s rules=%s broken=%s", self.of, verdict["rows"], len(verdict["rules"]), len(broken)
        )
        if verdict["report"]:
            self.log.info("Data Docs: file://%s", verdict["report"])
        if broken:
            raise AirflowFailException(str(_failure(self.of, verdict, broken)))
        return {"rows": verdict["rows"], "rules": len(verdict["rules"]), "data_docs": verdict["report"]}


def checked(document: object) -> set[str]:
    """Returns the tables that the command checked."""
    return {verdict["table"] for verdict in document or []}  # type: ignore[attr-defined]


def _failure(table: str, verdict: dict[str, Any], broken: list[dict[str, Any]]) -> QualityFailed:
    lines = [f"{rule['failing']:,} of {rule['rows']:,} rows break {rule['rule']}" for rule in broken]
    examples = [f"for example {sample['values']}" for sample in verdict["samples"][:1]]
    return QualityFailed(
        f"{table}: {'; '.join([*lines, *examples])}.",
        hint="The Data Docs, whose place is logged above, show every rule.",
    )
