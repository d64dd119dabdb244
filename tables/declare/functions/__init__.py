"""Functions that declarations call."""
