"""The log into events."""
