"""Symptoms: what can be wrong while the platform runs, each kind declared once, and what of it is so in a snapshot."""
