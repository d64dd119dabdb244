"""Plans of what rewrites of history would change, and their publication."""
