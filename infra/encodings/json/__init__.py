"""JSON records."""
