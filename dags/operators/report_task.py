"""The base class of tasks that report one part of a command's result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReportOperator(BaseOperator):
    """Reports the result of a command for one table, topic or domain; starts nothing itself.

    Args:
        source: the task that ran the command.
        of: the full name of the table, topic or domain.
    """

    def __init__(self, *, source: str, of: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.source = source
        self.of = of

    def reported(self, context: Context) -> Any:
        """Returns the JSON result of the command."""
        return context["ti"].xcom_pull(task_ids=self.source)
