"""Batch work: recompute tables from the log and publish the difference."""
