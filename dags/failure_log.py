"""Logs a failed task as one event: what, where and why."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger("twofold.dags")


def log_failure(context: Context) -> None:
    """Log one event; the place to add other notifications."""
    instance = context["ti"]
    log.error(
        "task_failed dag=%s task=%s run=%s attempt=%s error=%r",
        instance.dag_id,
        instance.task_id,
        instance.run_id,
        instance.try_number,
        str(context.get("exception") or "the task's process died"),
    )
