"""Schemas of records that do not describe themselves."""
