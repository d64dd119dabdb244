"""Registers the timetables of Twofold's DAGs with Airflow's scheduler and API."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from twofold.dags.day_partitions import DayPartitions


class _StoredBefore(DayPartitions):
    """Days by the name that they have in DAGs which Airflow stored before version 0.2."""


_StoredBefore.__module__, _StoredBefore.__name__ = "dags.day_partitions", DayPartitions.__name__


class TwofoldTimetables(AirflowPlugin):
    """Registers `DayPartitions`."""

    name = "twofold_timetables"
    timetables = [DayPartitions, _StoredBefore]  # noqa: RUF012 - Airflow declares it so
