"""Operator that reconciles one table, and reports the changes in its log and in the table's asset."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias
from airflow.sdk.exceptions import AirflowFailException

from twofold.dags.operators.asset_events import ANNOUNCE, publish_change
from twofold.dags.operators.command_operator import CommandOperator
from twofold.dags.operators.command_report import TableReport, changed_tables, of_table, read_reports
from twofold.infra.errors import UnexplainedDifference

if TYPE_CHECKING:
    from airflow.sdk import Context

LOOK = "look"
"""The task that says which tables have work, or that has verified them all."""
ALL_RIGHT = "all_right"
"""The task that fails with any table."""


class ReconcileOperator(CommandOperator):
    """Reconciles one table; if rows change, the table's asset gets an event with the count, cause and version.

    A verification is one job for all tables, run by `look`; then this task only reports its findings.
    """

    def __init__(self, *, of: str, changes: AssetAlias, **settings: Any) -> None:
        super().__init__(command="reconcile", arguments=[of], outlets=[changes], **settings)
        self.of = of
        self.changes = changes

    def execute(self, context: Context) -> object:
        looked = context["ti"].xcom_pull(task_ids=LOOK) or []
        verified = [part for part in looked if isinstance(part, Mapping) and part["table"] == self.of]
        document = verified or self.run_in(context)
        reports = of_table(read_reports(document), self.of)
        for line in lines_of(reports):
            self.log.info("%s", line)
        if unexplained := sum(report.unexplained for report in reports):
            error = UnexplainedDifference(
                f"{self.of}: {unexplained:,} rows differ from their recomputation and no touched row says why.",
                hint="They were left as they are. The page of this DAG says how to go on.",
            )
            raise AirflowFailException(str(error))
        if changed_tables(reports):
            publish_change(context, self.changes, self.of, reports)
        return document


def with_work(document: object) -> set[str]:
    """Returns the tasks with work after the task `look`: tables with pending work, and those found changed or wrong."""
    parts: Sequence[Any] = document if isinstance(document, list) else []
    names = {part for part in parts if isinstance(part, str)}
    reports = read_reports([part for part in parts if isinstance(part, Mapping)])
    names |= {report.table for report in reports if report.changed or report.unexplained}
    return names | ({ANNOUNCE, ALL_RIGHT} if names else set())


def lines_of(reports: Collection[TableReport]) -> Iterator[str]:
    """Yields lines for people about the work on a table."""
    for report in reports:
        yield (
            f"{report.cause}: {report.touched:,} input rows were late or changed; {report.scopes:,} groups of rows "
            "recomputed."
        )
        if report.changed:
            yield (
                f"{report.changed:,} rows changed (+{report.inserted:,} -{report.deleted:,} ~{report.updated:,}), "
                f"version {report.version_before} to {report.version_after}, run {report.run}."
            )
            yield from report.corrected
        if report.pending:
            yield f"{report.pending:,} groups have rows that are still open; they are looked at again once these close."
    if not any(report.changed or report.unexplained for report in reports):
        yield "Everything was right: nothing had to be corrected."
