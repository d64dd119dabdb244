"""Webhooks: their signatures, the secrets of these, and deliveries as records."""
