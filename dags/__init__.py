"""Airflow DAGs, generated from the declarations."""
