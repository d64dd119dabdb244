"""Shows the faults of declarations, and of the DAGs made from them, as the import error of this file.

Airflow takes every DAG of a file with an import error out of service. This file has no DAGs, so `generate_dags.py` can
serve the other tables. A table whose code is not known to give one result is shown while it has no rows.
"""

from __future__ import annotations

from dataclasses import replace

from twofold.dags.sound_dags import sound_dags
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import running

_settings = Settings.from_environment()
_registry = running(_settings)
_faults = {**_registry.faults, **sound_dags(_registry, _settings).faults}
if _registry.unproved:  # rare, and whether such a table has rows is in the lake, whose library takes a while to load
    from twofold.infra.delta.lake import Lake
    from twofold.tables.refresh.acceptance import refused

    _faults |= refused(Lake(_settings), _registry)
replace(_registry, faults=_faults).require_sound()
