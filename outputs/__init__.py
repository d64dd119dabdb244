"""Outputs: copies of tables that follow them."""
