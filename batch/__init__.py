"""Batch work: recomputes tables from the log and publishes the difference."""
