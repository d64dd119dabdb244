"""Captured databases: lost and deleted rows, and tables that must be captured again."""
