"""Outputs of tables, as declarations name them."""
