"""What every streaming query has: a name, progress, a pool."""
