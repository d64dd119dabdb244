"""Publishes asset events of the tables that tasks changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import AssetAlias, BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from twofold.dags.operators.assets import change_facts, domain_asset, table_asset
from twofold.dags.operators.command_report import TableReport, changed_tables, of_table, read_reports

if TYPE_CHECKING:
    from airflow.sdk import Context


ANNOUNCE = "announce"


class AssetEventsOperator(BaseOperator):
    """Publishes one asset event of a domain, with the tables that tasks changed; none if they changed none.

    Args:
        of: the domain.
        sources: the tasks that changed tables.
        changes: the alias through which asset events are published.
        with_tables: also publish an event of each changed table's own asset.
    """

    def __init__(
        self, *, of: str, sources: Sequence[str], changes: AssetAlias, with_tables: bool, **settings: Any
    ) -> None:
        super().__init__(outlets=[changes], **settings)
        self.of = of
        self.sources = list(sources)
        self.changes = changes
        self.with_tables = with_tables

    def execute(self, context: Context) -> list[str]:
        results = [context["ti"].xcom_pull(task_ids=source) for source in self.sources]
        reports = [report for result in results if result is not None for report in read_reports(result)]
        changed = changed_tables(reports)
        if not changed:
            self.log.info("Nothing changed.")
            return []
        events = context["outlet_events"][self.changes]
        if self.with_tables:
            for name in changed:
                publish_change(context, self.changes, name, of_table(reports, name))
        events.add(domain_asset(self.of), extra={"tables": list[Any](changed)})
        return changed


def publish_change(context: Context, changes: AssetAlias, full_name: str, reports: Sequence[TableReport]) -> None:
    """Publishes an event of a table's asset, and one for each day with changed rows, as its partition.

    Airflow passes partition events to DAGs scheduled by partitions, and the other event to all other DAGs. Every event
    in a run of a partition has that partition.
    """
    asset, facts = table_asset(full_name), dict[str, Any](change_facts(reports))
    context["outlet_events"][changes].add(asset, extra=facts)
    days = sorted({day for report in reports for day in report.days})
    if days and not context.get("partition_key"):
        # An outlet that is declared from the start would get an event even if nothing changed.
        context["task"].outlets = [*context["task"].outlets, asset]
        of_days: Any = context["outlet_events"][asset]
        of_days.add_partitions(days)
        of_days.extra = facts


def tables_to_check(context: Context, tables: Sequence[str]) -> list[str]:
    """Filters `tables` to those named by the asset's events, all if no event started the run. The inlet is the asset.

    Airflow starts one run for all events that arrive while the DAG runs, but passes only the first to it; the others
    would wait for the next event, perhaps for days. Therefore all events since the run's first one are read.
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
