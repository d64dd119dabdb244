"""Delta tables of runs, corrections, causes and positions."""
