"""The reference of DAGs is made by Airflow, in an empty home."""

from __future__ import annotations

from tests.dags.conftest import airflow_home

__all__ = ["airflow_home"]
