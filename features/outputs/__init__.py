"""Copies of tables elsewhere, which follow them."""
