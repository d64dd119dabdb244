"""Sources of the demo domains, with a journal of what the broker acknowledged."""
