"""Captures that run: their states, audits, and how one begins again."""
