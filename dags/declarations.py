"""Shows the faults of declarations as the import error of this file; it defines no Airflow DAG.

Airflow takes every DAG of a file with an import error out of service. Here there is none to lose, while `domains.py`
goes on serving the tables without a fault.
"""

from __future__ import annotations

from infra.errors import BadDeclaration
from tables.registry import load_sound

_registry, _faults = load_sound()
if _faults:
    raise BadDeclaration("\n".join(str(fault) for fault in _faults))
