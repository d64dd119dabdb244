"""Generates the DAGs of a domain and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, AssetOrTimeSchedule, BaseOperator, CronTriggerTimetable, Param, TriggerRule

from twofold.dags import dag_docs
from twofold.dags.dag_defaults import (
    LIGHT,
    ONE_TABLE,
    REGULAR,
    SHORT_SPARK,
    SPARK,
    Domain,
    ask_param,
    make_dag,
    next_time,
    plan_and_publication,
)
from twofold.dags.day_partitions import DayPartitions
from twofold.dags.operators.asset_events import ANNOUNCE, AssetEventsOperator, tables_to_check
from twofold.dags.operators.assets import changes_of, described_asset, domain_asset
from twofold.dags.operators.audit_report import LogAuditOperator, TableAuditOperator
from twofold.dags.operators.closed_days import Days
from twofold.dags.operators.command_operator import CommandOperator, FanOutOperator
from twofold.dags.operators.params import (
    audit_arguments,
    backfill_arguments,
    look_arguments,
    recover_arguments,
    table_argument,
)
from twofold.dags.operators.quality_report import VerdictOperator, checked
from twofold.dags.operators.stream_watchdog import StreamOperator
from twofold.dags.operators.table_work import ALL_RIGHT, LOOK, ReconcileOperator, with_work
from twofold.dags.topic_dags import TOPIC_DAGS
from twofold.infra import COMMAND
from twofold.infra.airflow.dag_names import BACKFILL, dag_ids
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table

if TYPE_CHECKING:
    from airflow.sdk import Context

STREAM_AT = "* * * * *"
RECONCILE_AT = "*/15 * * * *"
AUDIT_AT = "40 3 * * *"
QUALITY_AT = "10 */6 * * *"


def make_dags(
    registry: Registry, domain: str, days: Mapping[str, Days] = MappingProxyType({}), *, only: str | None = None
) -> Iterator[DAG]:
    """Yields the DAGs of a domain: `<domain>.stream`, and those for its tables and topics, such as reconcile and audit.

    Args:
        days: full name of a table -> the days of its rows, for the form of its backfill.
        only: make only the DAG with this id.
    """
    plan = Domain(
        name=domain,
        topics=tuple(topic for topic in registry.topics.values() if topic.domain == domain),
        tables=tuple(registry.in_order(domain)),
        registry=registry,
    )
    makers = {"stream": _stream, "reconcile": _reconcile, "repair": _repair, "rebuild": _rebuild, "recover": _recover}
    makers |= {"audit": _audit, "quality": _quality, **TOPIC_DAGS}
    names, has_persons = [table.name for table in plan.tables], any(topic.covered for topic in plan.topics)
    for dag_id in dag_ids(domain, names, has_topics=bool(plan.topics), has_persons=has_persons):
        if only not in (None, dag_id):
            continue
        kind, _, table = dag_id.removeprefix(f"{domain}.").partition(".")
        name = f"{domain}.{table}"
        yield _backfill(plan, registry.tables[name], days.get(name)) if table else makers[kind](plan)


def _stream(domain: Domain) -> DAG:
    with make_dag(domain, "stream", "Keeps the stream running: checks, restarts, reports.", schedule=STREAM_AT) as dag:
        StreamOperator(
            task_id="watch",
            domain=domain.name,
            changes=changes_of(domain.name),
            retries=1,
            execution_timeout=timedelta(minutes=5),
            doc_md=f"Reads `{COMMAND} status`, restarts what does not run or move, fails when that does not help. "
            "The asset of each table that the stream has written since the last look gets an event.",
        )
    return dag


def _reconcile(domain: Domain) -> DAG:
    about = "Corrects what late records changed, and proves that nothing else differs."
    verify = Param(
        False,
        title="Verify",
        type="boolean",
        description="Also recompute every closed row, and count differences that no late record explains.",
    )
    with make_dag(domain, "reconcile", about, schedule=RECONCILE_AT, params={"verify": verify}) as dag:
        look = FanOutOperator(
            task_id=LOOK,
            command="reconcile",
            telling=with_work,
            note="Right: nothing was late, no input has changed.",
            arguments=lambda context: look_arguments(context["params"], domain.table_names),
            **SHORT_SPARK,
            doc_md="Finds the tables that have work, from Delta's logs. With *Verify* it is one Spark job for all.",
        )
        tasks = {
            table.full_name: ReconcileOperator(
                task_id=table.full_name,
                of=table.full_name,
                changes=changes_of(domain.name),
                inlets=[described_asset(source) for source in (*domain.registry.upstream(table), table)],
                owner=table.owner or table.domain,
                doc_md=dag_docs.table_task(table, domain.registry.descriptions.get(table.full_name, {})),
                **ONE_TABLE,
            )
            for table in domain.tables
        }
        _connect(domain, look, tasks)
        announce = AssetEventsOperator(
            task_id=ANNOUNCE,
            sources=[*tasks],
            of=domain.name,
            changes=changes_of(domain.name),
            with_tables=False,
            **{**LIGHT, **REGULAR, "trigger_rule": TriggerRule.ALL_DONE},
        )
        # Both after every table: `look` lets those that are right succeed, also behind one that is still corrected.
        # The run is as its last tasks are, and a table behind one that failed may succeed. It is never started.
        all_right = EmptyOperator(task_id=ALL_RIGHT, trigger_rule=TriggerRule.NONE_FAILED)
        for task in tasks.values():
            task >> [announce, all_right]
    return dag


def _audit(domain: Domain) -> DAG:
    about = "Recomputes a share of all rows, and holds the log against events and quarantine."
    everything = Param(
        False, title="All", type="boolean", description="Recompute every closed row, not the share of the day."
    )
    with make_dag(domain, "audit", about, schedule=next_time(AUDIT_AT), params={"everything": everything}) as dag:
        look = CommandOperator(
            task_id="look",
            command="audit",
            arguments=lambda context: audit_arguments(context["params"], domain.table_names),
            **SPARK,
            doc_md="One Spark job for all tables; it repairs nothing. The tasks behind it say what was found.",
        )
        look >> LogAuditOperator(
            task_id="log",
            source="look",
            of=domain.name,
            doc_md="Fails where an offset is not once among events and quarantine, or the broker lost records.",
            **LIGHT,
        )
        for table in domain.tables:
            look >> TableAuditOperator(
                task_id=table.full_name,
                source="look",
                of=table.full_name,
                owner=table.owner or table.domain,
                doc_md=f"**{table.full_name}**: fails where rows differ though nothing touched them, "
                "or where its definition has changed.",
                **LIGHT,
            )
    return dag


def _repair(domain: Domain) -> DAG:
    about = "Shows the rows of a table that nothing explains, and overwrites them when a person approves."
    with make_dag(domain, "repair", about, params=_of_a_table(domain)) as dag:
        plan_and_publication(
            domain,
            "reconcile",
            lambda context: [table_argument(context["params"], domain.table_names), "--repair", "--preview"],
            "Recomputes every closed row, and plans to overwrite those that differ though nothing touched them.",
        )
    return dag


def _rebuild(domain: Domain) -> DAG:
    about = "Rebuilds a table from the log in a shadow lake, and promotes it when a person approves."
    with make_dag(domain, "rebuild", about, params=_of_a_table(domain)) as dag:
        plan_and_publication(
            domain,
            "rebuild",
            lambda context: [table_argument(context["params"], domain.table_names)],
            "Runs the streaming code over the whole log into a shadow lake; goes on where it was cut short.",
        )
    return dag


def _recover(domain: Domain) -> DAG:
    params = {
        **_of_a_table(domain),
        "at_most": Param(
            0,
            title="Differing",
            type="integer",
            minimum=0,
            description="Go on though so many rows differ. A run that fails names them.",
        ),
        "from_archive": Param(
            False,
            title="From the archive",
            type="boolean",
            description="Decode the archived log again, though the events reach back to its beginning.",
        ),
    }
    about = "Makes the lost checkpoint or state of a table's stream again, proves it, and lets the stream go on."
    with make_dag(domain, "recover", about, params=params) as dag:
        CommandOperator(
            task_id="recover",
            command="recover",
            arguments=lambda context: recover_arguments(context["params"], domain.table_names),
            **SPARK,
            doc_md="Runs the streaming code to where the lost stream was; nothing is put in place that differs.",
        )
    return dag


def _quality(domain: Domain) -> DAG:
    about = "Checks the tables that a run changed against their rules, and all of them four times a day."
    fresh = CronTriggerTimetable(QUALITY_AT, timezone="UTC")
    schedule = AssetOrTimeSchedule(timetable=fresh, assets=[domain_asset(domain.name)])
    with make_dag(domain, "quality", about, schedule=schedule) as dag:
        check = FanOutOperator(
            task_id="check",
            command="quality",
            telling=checked,
            note="Not checked: no run has changed it.",
            arguments=lambda context: tables_to_check(context, domain.table_names),
            inlets=[domain_asset(domain.name)],
            **SHORT_SPARK,
            doc_md="One Spark job for the tables that the event names; for all when no event started the run.",
        )
        for table in domain.tables:
            check >> VerdictOperator(
                task_id=table.full_name,
                source="check",
                of=table.full_name,
                owner=table.owner or table.domain,
                doc_md=dag_docs.rules(table),
                **LIGHT,
            )
    return dag


def _backfill(domain: Domain, table: Table, days: Days | None) -> DAG:
    with_range = f"Recomputes {table.full_name}, a range of time or all of it, and publishes the differences."
    whole = f"Recomputes {table.full_name} and publishes the differences."
    dag = make_dag(
        domain,
        BACKFILL,
        with_range if table.event_time else whole,
        table=table,
        schedule=DayPartitions() if table.event_time else None,
        params={**(_range(table, days) if table.event_time else {}), **ask_param()},
    )

    def arguments(context: Context) -> list[str]:
        if not table.event_time:
            return [table.full_name, "--preview"]
        return [*backfill_arguments(context["params"], table.full_name, context.get("partition_key")), "--preview"]

    with dag:
        about = "The rows are computed in a copy of the table, checked, and compared with the live ones."
        plan_and_publication(domain, "backfill", arguments, about)
    return dag


def _range(table: Table, days: Days | None) -> dict[str, Param]:
    """Returns the params of a run over a range of a table's rows; the newest closed day is the default."""
    instant: dict[str, Any] = {"type": ["null", "string"], "format": "date-time"}
    there, start, end = "", None, None
    if days:
        there = f" There are rows from {days.first} to {days.last}, the newest closed day is proposed."
        start, end = (f"{day}T00:00:00Z" for day in (days.closed, days.closed + timedelta(days=1)))
    first = f"First instant of the range, by the column {table.event_time}.{there} A backfill takes its days instead."
    every = "Instead of the range, every closed row: this accepts a changed definition of the table."
    return {
        "start": Param(start, title="Start", description=first, **instant),
        "end": Param(end, title="End", description="First instant after the range.", **instant),
        "everything": Param(False, title="All rows", type="boolean", description=every),
    }


def _of_a_table(domain: Domain) -> dict[str, Param]:
    """Returns the param that selects one table."""
    return {"table": Param(title="Table", enum=domain.table_names, type="string")}


def _connect(domain: Domain, first: BaseOperator, tasks: dict[str, ReconcileOperator]) -> None:
    """Orders each table's task after those of its inputs, or else after `first`.

    A table is reconciled even if one of its inputs failed.
    """
    for table in domain.tables:
        inputs = [declaration.full_name for declaration in domain.registry.upstream(table)]
        above: list[BaseOperator] = [tasks[name] for name in inputs if name in tasks]
        if above:
            tasks[table.full_name].trigger_rule = TriggerRule.ALL_DONE
        for task in above or [first]:
            task >> tasks[table.full_name]
