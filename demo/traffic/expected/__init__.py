"""SQL for the expected rows of the demo tables."""
