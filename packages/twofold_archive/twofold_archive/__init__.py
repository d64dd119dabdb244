"""Reads archived records directly from Kafka's tiered storage, bypassing the broker."""
