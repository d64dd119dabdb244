"""Airflow on this machine: its processes and its REST API."""
