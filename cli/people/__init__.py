"""Commands about persons, and the keys by which their data are encrypted."""
