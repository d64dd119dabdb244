"""Benchmarks of what a refresh costs, against the recomputation of all rows."""
