"""Hands the records of a topic to the processes of a command."""
