"""Names the DAGs of a domain, without Airflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

OF_TABLES = ("reconcile", "repair", "rebuild", "recover", "audit", "quality")
OF_TOPICS = ("replay", "redrive", "audit_topic")
FORGET = "forget"
BACKFILL = "backfill"
MAINTAIN = "maintain"
"""The DAG of a home, which belongs to no domain."""
APPROVE, REASON = "approve", "because"
"""The task of a DAG that waits for a person, and the field of its form; a DAG may have a param `reason` of its own."""


def dag_ids(domain: str, tables: Sequence[str], *, has_topics: bool, has_persons: bool) -> list[str]:
    """Returns the ids of a domain's DAGs: `<domain>.<kind>`, and `<domain>.backfill.<table>`."""
    of_topics = (*(OF_TOPICS if has_topics else ()), *((FORGET,) if has_persons else ()))
    kinds = ("stream", *(OF_TABLES if tables else ()), *of_topics)
    return [f"{domain}.{name}" for name in (*kinds, *(f"{BACKFILL}.{table}" for table in tables))]


def dag_run_of(environment: Mapping[str, str]) -> str:
    """Returns DAG and run of the task that this process works for, with a space between; empty: for none."""
    names = [environment.get(f"AIRFLOW_CTX_{name}", "") for name in ("DAG_ID", "DAG_RUN_ID")]
    return " ".join(names) if all(names) else ""
