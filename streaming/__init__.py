"""Keeps live tables fresh."""
