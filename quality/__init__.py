"""Rules for good rows and good tables, and their checks."""
