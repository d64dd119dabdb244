"""Airflow DAGs, generated from the declarations: what runs when and in which order."""
