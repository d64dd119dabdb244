"""Shows the faults of declarations, and of the DAGs made from them, as the import error of this file.

Airflow takes every DAG of a file with an import error out of service. This file has no DAGs, so `generate_dags.py` can
still serve the tables without a fault.
"""

from __future__ import annotations

from dataclasses import replace

from dags.sound_dags import sound_dags
from infra.settings import Settings
from tables.declare.registry import running

_settings = Settings.from_environment()
_registry = running(_settings)
replace(_registry, faults={**_registry.faults, **sound_dags(_registry, _settings).faults}).require_sound()
