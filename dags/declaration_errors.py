"""Shows the faults of the declarations that run as the import error of this file; it defines no Airflow DAG.

Airflow takes every DAG of a file with an import error out of service. Here there is none to lose, while
`generate_dags.py` goes on serving the tables without a fault.
"""

from __future__ import annotations

from infra.settings import Settings
from tables.declare.registry import running

running(Settings.from_environment()).require_sound()
