"""The parts of every streaming query: a name, progress, a pool."""
