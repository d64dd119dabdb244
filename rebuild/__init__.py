"""Tables and lost state, made again from the log."""
