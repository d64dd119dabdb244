"""The application, in Airflow or alone."""
