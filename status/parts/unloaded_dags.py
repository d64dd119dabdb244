"""Finds declared DAGs that Airflow has not loaded, and the reason."""

from __future__ import annotations

import time
from collections.abc import Sequence

from twofold.infra.airflow.airflow_api import Client
from twofold.infra.airflow.airflow_processes import parser_log, parser_traceback
from twofold.infra.airflow.dag_names import MAINTAIN, dag_ids
from twofold.infra.errors import ProcessFailed
from twofold.infra.process.supervisor import ProcessState
from twofold.infra.project.project import project
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry

LOADING_S = 90.0
"""How long Airflow may take to load DAGs after it has started, or after a file has changed."""
MOST_NAMES = 3


def require_loaded(settings: Settings, registry: Registry, processes: Sequence[ProcessState]) -> None:
    """Refuses that Airflow lacks declared DAGs, unless it does not run, or may still load them.

    Raises:
        ProcessFailed: names some; or Airflow does not answer.
    """
    up_s = next((p.uptime_s for p in processes if p.name == "airflow-dag-processor"), None)
    changed = max((path.stat().st_mtime for path in project().tables.rglob("*.py")), default=0.0)
    if up_s is None or min(up_s, time.time() - changed) < LOADING_S:
        return
    wanted = [MAINTAIN, *(dag for domain in registry.domains for dag in declared_dags(registry, domain))]
    if why := why_unloaded(settings, wanted):
        hint = "Correct the declaration that is named; Airflow reads the files again within a minute."
        raise ProcessFailed(why, hint=hint)


def declared_dags(registry: Registry, domain: str) -> list[str]:
    """Returns the ids of the DAGs that a domain's declarations make."""
    tables = [table.name for table in registry.in_order(domain)]
    topics = registry.domain_topics(domain)
    return dag_ids(domain, tables, has_topics=bool(topics), has_persons=any(t.covered for t in topics))


def why_unloaded(settings: Settings, wanted: Sequence[str]) -> str | None:
    """Describes the DAGs that Airflow lacks, with its errors and those of its parser; None if it has all.

    Raises:
        ProcessFailed: Airflow does not answer.
    """
    client = Client(settings)
    loaded = set(client.dags())
    missing = [dag for dag in wanted if dag not in loaded]
    if not missing:
        return None
    names = ", ".join(missing[:MOST_NAMES]) + (f" and {len(missing) - MOST_NAMES} more" if missing[MOST_NAMES:] else "")
    errors = [text.strip().splitlines()[-1] for text in client.import_errors().values()]
    ends = parser_traceback(settings)
    log = f"The last error in {parser_log(settings)}:" if ends else f"There is no error in {parser_log(settings)}."
    return "\n".join([f"Airflow has not loaded {names}.", *errors, log, *ends])
