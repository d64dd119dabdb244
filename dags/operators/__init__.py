"""Operators, one kind of task each."""
