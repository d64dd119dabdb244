"""Names the DAGs of a domain, without Airflow."""

from __future__ import annotations

from tables.declare.registry import Registry

OF_TABLES = ("reconcile", "repair", "rebuild", "recover", "audit", "quality")
OF_TOPICS = ("replay", "redrive", "audit_topic")
BACKFILL = "backfill"


def dag_ids(registry: Registry, domain: str) -> list[str]:
    """Lists the ids of the DAGs made by `dags.table_dags`: `<domain>.<kind>`, and `<domain>.backfill.<table>`."""
    tables = registry.in_order(domain)
    has_topics = any(topic.domain == domain for topic in registry.topics.values())
    kinds = ("stream", *(OF_TABLES if tables else ()), *(OF_TOPICS if has_topics else ()))
    return [f"{domain}.{name}" for name in (*kinds, *(f"{BACKFILL}.{table.name}" for table in tables))]
