"""Names the DAGs of a domain, without Airflow."""

from __future__ import annotations

from collections.abc import Sequence

OF_TABLES = ("reconcile", "repair", "rebuild", "recover", "audit", "quality")
OF_TOPICS = ("replay", "redrive", "audit_topic")
BACKFILL = "backfill"


def dag_ids(domain: str, tables: Sequence[str], *, has_topics: bool) -> list[str]:
    """Returns the ids of a domain's DAGs: `<domain>.<kind>`, and `<domain>.backfill.<table>`."""
    kinds = ("stream", *(OF_TABLES if tables else ()), *(OF_TOPICS if has_topics else ()))
    return [f"{domain}.{name}" for name in (*kinds, *(f"{BACKFILL}.{table}" for table in tables))]
