"""Maintains tables from events and changes."""
