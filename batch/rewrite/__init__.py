"""Rewrites history: backfill, replay, redrive."""
