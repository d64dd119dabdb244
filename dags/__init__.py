"""Airflow DAGs, generated from the declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import DAG


def project_dags() -> dict[str, DAG]:
    """Makes the DAGs of every running domain of the project, for a file of Airflow: `globals().update(project_dags())`.

    It reads only declaration files: no Spark, no broker, no database. Files that cannot be loaded are left out, and so
    are domains whose DAGs Airflow cannot store: `declaration_errors.py` shows the reasons.

    Returns:
        DAGs by id; only that of the task, where a task starts.
    """
    from airflow.sdk import get_parsing_context

    from twofold.dags.sound_dags import sound_dags
    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.registry import running

    settings = Settings.from_environment()
    made = sound_dags(running(settings), settings, only=get_parsing_context().dag_id)
    return {dag.dag_id: dag for dag in made.dags}
