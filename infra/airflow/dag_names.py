"""Names the DAGs of a domain, without Airflow."""

from __future__ import annotations

from collections.abc import Sequence

OF_TABLES = ("reconcile", "repair", "rebuild", "recover", "audit", "quality")
OF_TOPICS = ("replay", "redrive", "audit_topic")
BACKFILL = "backfill"


<<<<<<< HEAD:infra/airflow/dag_names.py
def dag_ids(domain: str, tables: Sequence[str], *, has_topics: bool) -> list[str]:
    """Returns the ids of a domain's DAGs: `<domain>.<kind>`, and `<domain>.backfill.<table>`."""
=======
def dag_ids(registry: Registry, domain: str) -> list[str]:
    """Lists the ids of the DAGs made by `dags.table_dags`: `<domain>.<kind>`, and `<domain>.backfill.<table>`."""
    tables = registry.in_order(domain)
    has_topics = any(topic.domain == domain for topic in registry.topics.values())
>>>>>>> h-english:dags/dag_names.py
    kinds = ("stream", *(OF_TABLES if tables else ()), *(OF_TOPICS if has_topics else ()))
    return [f"{domain}.{name}" for name in (*kinds, *(f"{BACKFILL}.{table}" for table in tables))]
