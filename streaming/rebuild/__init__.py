"""Streaming code run once more over the log, in a shadow."""
