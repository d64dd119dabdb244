"""The DAGs of every domain that runs, as Airflow finds them: generated from the declarations under tables/.

Nothing but declaration files is read when Airflow loads this: no Spark, no broker, no database. A file that cannot be
loaded is left out here; `declaration_errors.py` shows why, so that its fault stays with it.
"""

from __future__ import annotations

from airflow.sdk import get_parsing_context

from dags.operators.closed_days import read_closed_days
from dags.table_dags import make_dags
from infra.settings import Settings
from tables.declare.registry import running

_only = get_parsing_context().dag_id  # the DAG of the task that starts here; None where all are looked at
_settings = Settings.from_environment()
_registry = running(_settings)
for _domain in _registry.domains:
    for _dag in make_dags(_registry, _domain, read_closed_days(_settings, _domain), only=_only):
        globals()[_dag.dag_id] = _dag
