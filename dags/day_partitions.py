"""Timetable of DAGs whose runs each process one day of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.timetables.trigger import CronPartitionTimetable

if TYPE_CHECKING:
    from airflow.timetables.base import DagRunInfo, TimeRestriction

MIDNIGHT = "0 0 * * *"
DAY = "%Y-%m-%d"


class DayPartitions(CronPartitionTimetable):
    """Partitions of one day in UTC, named like `2013-01-05`; they run on request, never on a schedule."""

    can_be_scheduled = False

    def __init__(self) -> None:
        super().__init__(MIDNIGHT, timezone="UTC", key_format=DAY)
        self.description = "A day of the table, when it is asked for"

    @property
    def summary(self) -> str:
        """The text of a DAG's schedule in Airflow."""
        return "on demand, by day"

    def serialize(self) -> dict[str, Any]:
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> DayPartitions:
        return cls()

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Returns None: no run is ever scheduled."""
        return None
