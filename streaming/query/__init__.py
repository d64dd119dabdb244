"""Shared parts of streaming queries: a name, progress, a pool."""
