"""Runs, corrections, causes and positions, as Delta tables."""
