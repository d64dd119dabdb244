"""The project whose declarations run: where it is, and what it settles."""
