"""Defaults that the DAGs of a domain share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, CronTriggerTimetable, Param
from airflow.utils.types import DagRunType

from twofold.dags import dag_docs
from twofold.dags.failure_log import failure_callbacks
from twofold.dags.operators.asset_events import ANNOUNCE, AssetEventsOperator
from twofold.dags.operators.assets import changes_of
from twofold.dags.operators.command_operator import CommandOperator
from twofold.dags.operators.plan_approval import PREVIEW, PUBLISH, PlanApproval, PlanOperator, published_plan
from twofold.infra.airflow.dag_names import BACKFILL
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic

if TYPE_CHECKING:
    from twofold.dags.operators.command_operator import Arguments

# The default pool has 4 slots on one machine: one Spark job at a time, and a slot for light tasks.
SPARK_SLOTS = 3
SPARK: dict[str, Any] = {"pool_slots": SPARK_SLOTS, "execution_timeout": timedelta(hours=2)}
SHORT_SPARK: dict[str, Any] = {**SPARK, "execution_timeout": timedelta(minutes=30)}
# Regular work on one table: two at once, and before rewrites that wait for the same slots; the next run waits for it.
REGULAR: dict[str, Any] = {"priority_weight": 10}
ONE_TABLE: dict[str, Any] = {**REGULAR, "pool_slots": 2, "execution_timeout": timedelta(minutes=30)}
# Airflow's own backfill is for days of a table; of an audit, say, it would mean nothing.
WITHOUT_BACKFILL: Any = set(DagRunType) - {DagRunType.BACKFILL_JOB}
LIGHT: dict[str, Any] = {"execution_timeout": timedelta(minutes=2), "trigger_rule": "none_failed"}


@dataclass(frozen=True, kw_only=True)
class Domain:
    """The facts from which a domain's DAGs are made; `tables` has each table after its inputs."""

    name: str
    topics: tuple[Topic, ...]
    tables: tuple[Table, ...]
    registry: Registry

    @property
    def table_names(self) -> list[str]:
        return [table.full_name for table in self.tables]

    @property
    def topic_names(self) -> list[str]:
        return [topic.full_name for topic in self.topics]


def next_time(cron: str) -> CronTriggerTimetable:
    """Returns a schedule by UTC whose first run is the next one.

    Left to itself Airflow begins with the run before, if that was due less than a tenth of the time between two ago.
    """
    return CronTriggerTimetable(cron, timezone="UTC", run_immediately=timedelta())


def task_defaults(owner: str) -> dict[str, Any]:
    """Returns what all tasks of a DAG have."""
    return {
        "owner": owner,
        "retries": 2,
        "retry_delay": timedelta(seconds=20),
        "retry_exponential_backoff": 2,
        "max_retry_delay": timedelta(minutes=5),
        "on_failure_callback": failure_callbacks(),
    }


def make_dag(
    domain: Domain,
    kind: str,
    about: str,
    *,
    table: Table | None = None,
    schedule: Any = None,
    params: dict[str, Param] | None = None,
) -> DAG:
    """Creates the DAG `<domain>.<kind>` or `<domain>.<kind>.<table>` with its documentation from `dags.dag_docs`."""
    tables = domain.tables if table is None else (table,)
    return DAG(
        dag_id=".".join([domain.name, kind, *([table.name] if table else [])]),
        description=about,
        doc_md=dag_docs.dag_page(kind, domain.name, tables, domain.topics, domain.registry),
        schedule=schedule,
        # Without a start date the first run is the next one, not the one that would have been before Airflow started.
        catchup=False,
        max_active_runs=1,
        allowed_run_types=None if kind == BACKFILL else WITHOUT_BACKFILL,
        is_paused_upon_creation=False,
        auto_register=False,  # Airflow loads only the globals of a file
        params=params,
        tags={"twofold", domain.name, kind, *chain.from_iterable(declared.tags for declared in tables)},
        default_args=task_defaults((table and table.owner) or domain.name),
    )


def plan_and_publication(domain: Domain, command: str, arguments: Arguments, about: str) -> PlanOperator:
    """Creates the tasks that make a plan, ask for approval, publish it, and announce the changes; returns the first.

    Args:
        about: what `command` does, as documentation of its task.
    """
    plan = PlanOperator(task_id=PREVIEW, command=command, arguments=arguments, **SPARK, doc_md=about)
    approve = PlanApproval(
        response_timeout=timedelta(days=3),
        doc_md="Waits for a person under *Required actions*. Rejected, or not answered in three days: nothing is done.",
    )
    publish = CommandOperator(
        task_id=PUBLISH,
        command="publish",
        arguments=published_plan,
        **SPARK,
        doc_md="Publishes exactly the rows that were shown, each table in one commit; refused when they have changed.",
    )
    announce = AssetEventsOperator(
        task_id=ANNOUNCE,
        sources=[PUBLISH],
        of=domain.name,
        changes=changes_of(domain.name),
        with_tables=True,
        **LIGHT,
    )
    plan >> approve >> publish >> announce
    return plan


def ask_param() -> dict[str, Param]:
    """Returns the parameter of a run that chooses between approval and immediate publication."""
    about = "Show what would change, and wait for an approval under Required actions. Off: publish it at once."
    return {"ask": Param(True, title="Ask first", type="boolean", description=about)}
