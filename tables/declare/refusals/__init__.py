"""Refusals of declarations, apart from those of a function's plan."""
