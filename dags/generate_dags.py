"""Creates the DAGs of every running domain from the declarations under tables/, in a file that Airflow scans.

Loading it reads only declaration files: no Spark, no broker, no database. Files that cannot be loaded are left out, and
so are domains whose DAGs Airflow cannot store; `declaration_errors.py` shows the reasons.
"""

from __future__ import annotations

from airflow.sdk import get_parsing_context

from twofold.dags.sound_dags import sound_dags
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import running

_settings = Settings.from_environment()
_only = get_parsing_context().dag_id  # the DAG of the task that starts here; None if all are parsed
for _dag in sound_dags(running(_settings), _settings, only=_only).dags:
    globals()[_dag.dag_id] = _dag
