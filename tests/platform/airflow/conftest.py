"""Fixtures of tests with a whole platform."""

from __future__ import annotations

from tests.platform.airflow.running_airflow import airflow, platform

__all__ = ["airflow", "platform"]
