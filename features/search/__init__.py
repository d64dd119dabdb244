"""Searches: an index of the words of a table, and queries that are stored over a stream of texts."""
