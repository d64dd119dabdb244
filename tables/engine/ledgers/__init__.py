"""What the platform remembers of its own work, as Delta tables."""
