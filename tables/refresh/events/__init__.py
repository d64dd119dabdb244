"""The two tables of a topic: events, and quarantined records."""
