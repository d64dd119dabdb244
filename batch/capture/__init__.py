"""Captured databases: what was lost, deleted, or has to be captured again."""
