"""The light operator behind the quality command: how one table fared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from infra.errors import QualityFailed

if TYPE_CHECKING:
    from airflow.sdk import Context


class VerdictOperator(BaseOperator):
    """Fails when a rule of the table is broken; is skipped when the table was not checked.

    Args:
        source: the task that ran the command.
    """

    def __init__(self, *, source: str, table: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.source = source
        self.table = table

    def execute(self, context: Context) -> dict[str, Any]:
        verdicts = [v for v in context["ti"].xcom_pull(task_ids=self.source) or [] if v["table"] == self.table]
        if not verdicts:
            raise AirflowSkipException(f"{self.table} was not checked: no run changed it.")
        verdict = verdicts[-1]
        broken = [rule for rule in verdict["rules"] if rule["failing"]]
        self.log.info(
            "quality table=%s rows=%s rules=%s broken=%s",
            self.table,
            verdict["rows"],
            len(verdict["rules"]),
            len(broken),
        )
        if verdict["report"]:
            self.log.info("Data Docs: file://%s", verdict["report"])
        if broken:
            raise AirflowFailException(str(_failure(self.table, verdict, broken)))
        return {"rows": verdict["rows"], "rules": len(verdict["rules"]), "data_docs": verdict["report"]}


def checked(document: object) -> set[str]:
    """The tables that the command checked: those whose tasks have a verdict to tell."""
    return {verdict["table"] for verdict in document or []}  # type: ignore[attr-defined]


def _failure(table: str, verdict: dict[str, Any], broken: list[dict[str, Any]]) -> QualityFailed:
    lines = [f"{rule['failing']:,} of {rule['rows']:,} rows break {rule['rule']}" for rule in broken]
    examples = [f"for example {sample['values']}" for sample in verdict["samples"][:1]]
    return QualityFailed(
        f"{table}: {'; '.join([*lines, *examples])}.",
        hint="The Data Docs, whose place is logged above, show every rule.",
    )
