"""When work runs, in which order, and who is told: Airflow DAGs made from the declarations."""
