"""The page: what the platform knows of itself, for people, in Airflow's navigation or alone. It only reads."""
