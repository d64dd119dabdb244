"""The DAGs of every domain that runs, as Airflow finds them: generated from the declarations under tables/.

Nothing but declaration files is read when Airflow loads this: no Spark, no broker, no database. A file that cannot be
loaded is left out here, as is a domain whose DAGs Airflow cannot store; `declaration_errors.py` shows why.
"""

from __future__ import annotations

from airflow.sdk import get_parsing_context

from dags.sound_dags import sound_dags
from infra.settings import Settings
from tables.declare.registry import running

_settings = Settings.from_environment()
_only = get_parsing_context().dag_id  # the DAG of the task that starts here; None if all are parsed
for _dag in sound_dags(running(_settings), _settings, only=_only).dags:
    globals()[_dag.dag_id] = _dag
