"""Plugins that Airflow loads."""
