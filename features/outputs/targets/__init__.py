"""Targets: a class for each kind of output."""
