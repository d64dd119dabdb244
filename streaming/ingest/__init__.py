"""Ingests the log into events tables."""
