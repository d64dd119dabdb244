"""Callbacks of failed tasks: one log event, and the notifier from the settings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

    Callback = Callable[[Context], None]

log = logging.getLogger("twofold.dags")


def failure_callbacks() -> list[Callback]:
    """Returns the functions that Airflow calls when a task fails.

    Raises:
        BadArgument: the setting `TWOFOLD_AIRFLOW_NOTIFIER` names no callable.
    """
    named = Settings.from_environment().airflow_notifier
    if not named:
        return [log_failure]
    module, _, name = named.partition(":")
    try:
        notifier = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise _refused(named, str(error)) from error
    if isinstance(notifier, type):
        notifier = notifier()
    if not callable(notifier):
        raise _refused(named, f"{name} cannot be called")
    return [log_failure, notifier]


def log_failure(context: Context) -> None:
    """Logs one event with the failed task, its run and the reason."""
    instance = context["ti"]
    log.error(
        "task_failed dag=%s task=%s run=%s attempt=%s error=%r",
        instance.dag_id,
        instance.task_id,
        instance.run_id,
        instance.try_number,
        str(context.get("exception") or "the task's process died"),
    )


def _refused(named: str, why: str) -> BadArgument:
    return BadArgument(
        f"TWOFOLD_AIRFLOW_NOTIFIER={named!r}: {why}.",
        hint="Expected module:name of a notifier or a function, as alerts:PAGER, of a module that Python finds.",
    )
