"""Removes what grows and what nothing else removes."""
