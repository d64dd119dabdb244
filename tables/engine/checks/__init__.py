"""Comparisons that show that nothing is damaged or missing."""
