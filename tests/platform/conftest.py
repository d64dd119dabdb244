"""Fixtures of tests with real servers."""

from __future__ import annotations

from tests.platform.airflow import airflow

__all__ = ["airflow"]
