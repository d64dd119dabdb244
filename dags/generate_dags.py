"""The file in which the supervised Airflow finds the DAGs of the project."""

from __future__ import annotations

from twofold.dags import project_dags

globals().update(project_dags())
