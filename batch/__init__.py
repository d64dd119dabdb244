"""Recompute the truth."""
