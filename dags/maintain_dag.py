"""Makes the DAG that removes what nothing needs any more, one for all domains of a home."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from twofold.dags.dag_defaults import WITHOUT_BACKFILL, next_time, task_defaults
from twofold.dags.dag_docs import template
from twofold.dags.operators.command_operator import CommandOperator
from twofold.infra import COMMAND
from twofold.infra.airflow.dag_names import MAINTAIN

MAINTAIN_AT = "20 2 * * *"


def maintain_dag() -> DAG:
    """Creates the DAG, whose one task can be repeated, killed, and run beside all others."""
    with DAG(
        dag_id=MAINTAIN,
        description="Removes history that no reader needs, and what ended and killed work has left.",
        doc_md=template(MAINTAIN).substitute(command=COMMAND),
        schedule=next_time(MAINTAIN_AT),
        catchup=False,
        max_active_runs=1,
        allowed_run_types=WITHOUT_BACKFILL,
        is_paused_upon_creation=False,
        auto_register=False,  # Airflow loads only the globals of a file
        tags={"twofold", MAINTAIN},
        default_args=task_defaults("twofold"),
    ) as dag:
        CommandOperator(
            task_id=MAINTAIN,
            command=MAINTAIN,
            execution_timeout=timedelta(hours=2),
            doc_md="Its result lists what was removed, and why it could go.",
        )
    return dag
