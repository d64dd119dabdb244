"""Rewrites of history: backfill, replay, redrive."""
