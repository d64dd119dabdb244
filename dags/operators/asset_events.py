"""Operators that report a command's result by table and emit asset events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import AssetAlias
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags.operators.assets import change_facts, domain_asset, table_asset
from dags.operators.command_report import changed_tables, of_table, read_reports
from dags.operators.report_task import ReportOperator
from infra.errors import UnexplainedDifference

if TYPE_CHECKING:
    from airflow.sdk import Context


ANNOUNCE = "announce"


class TableOperator(ReportOperator):
    """Shows a command's result for one table: fails on unexplained differences, is skipped when nothing changed.

    When it succeeds, the asset of the table gets an event with the rows, the cause and the version of the change.
    """

    def __init__(self, *, of: str, **settings: Any) -> None:
        super().__init__(of=of, outlets=[table_asset(of)], **settings)

    def execute(self, context: Context) -> None:
        reports = of_table(read_reports(self.reported(context)), self.of)
        for report in reports:
            self.log.info("%s", report)
        unexplained = sum(report.unexplained for report in reports)
        if unexplained:
            error = UnexplainedDifference(
                f"{self.of}: {unexplained:,} rows differ from their recomputation and no touched row says why.",
                hint="They were left as they are. The page of this DAG says how to go on.",
            )
            raise AirflowFailException(str(error))
        if not changed_tables(reports):
            raise AirflowSkipException(f"{self.of} was right: nothing changed.")
        context["outlet_events"][table_asset(self.of)].extra.update(change_facts(reports))


def telling(document: object) -> set[str]:
    """The downstream tasks of a command that have something to report: of tables it changed or found wrong."""
    reports = read_reports(document)
    changed = set(changed_tables(reports))
    return changed | {report.table for report in reports if report.unexplained} | ({ANNOUNCE} if changed else set())


class AssetEventsOperator(ReportOperator):
    """Publishes asset events for the tables that a command changed; is skipped when it changed none.

    Args:
        tables: each changed table's own asset gets its event through this alias, too.
    """

    def __init__(self, *, of: str, tables: AssetAlias | None = None, **settings: Any) -> None:
        super().__init__(of=of, outlets=[domain_asset(of), *([tables] if tables else [])], **settings)
        self.tables = tables

    def execute(self, context: Context) -> list[str]:
        document = self.reported(context)
        if document is None:
            raise AirflowSkipException("Nothing was published.")
        reports = read_reports(document)
        for report in reports:
            self.log.info("%s", report)
        changed = changed_tables(reports)
        if not changed:
            raise AirflowSkipException("Nothing changed.")
        events = context["outlet_events"]
        events[domain_asset(self.of)].extra["tables"] = list(changed)
        if self.tables:
            for name in changed:
                events[self.tables].add(table_asset(name), extra=dict(change_facts(of_table(reports, name))))
        return changed


def tables_to_check(context: Context, tables: Sequence[str]) -> list[str]:
    """Those of `tables` that the asset's events name; all when no event started the run. The task's inlet is the asset.

    Airflow starts one run for events that come while the DAG runs, and hands it the first of them alone: the others
    wait for the next event, which may be days away. Therefore every event since the first of this run's counts.
    """
    started_by = [event for several in context["triggering_asset_events"].values() for event in several]
    if not started_by:
        return list(tables)
    [asset] = context["task"].inlets
    first = min(event.timestamp for event in started_by)
    announced = set[str]()
    for event in context["inlet_events"][asset].after(first.isoformat()):
        announced.update(cast("dict[str, list[str]]", event.extra or {}).get("tables", []))
    changed = [name for name in tables if name in announced]
    if not changed:
        raise AirflowSkipException("Only events of topics changed, no table.")
    return changed
