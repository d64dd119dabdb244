"""Records of the log as events."""
