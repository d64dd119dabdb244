"""Webhooks that are received into topics."""
