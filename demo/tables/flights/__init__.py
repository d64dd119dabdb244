"""Flights from New York in 2013, and the weather at its airports."""
