"""Processes of this machine: supervision, reaping, locks, ports."""
