"""Recomputing scopes of a table and publishing the difference."""
