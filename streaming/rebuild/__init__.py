"""Runs streaming code again over the log, in a shadow lake."""
