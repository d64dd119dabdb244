"""Registers the timetables of Twofold's DAGs with Airflow's scheduler and API."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from twofold.dags.day_partitions import DayPartitions


class TwofoldTimetables(AirflowPlugin):
    """Registers `DayPartitions`."""

    name = "twofold_timetables"
    timetables = [DayPartitions]  # noqa: RUF012 - Airflow declares it so
