"""Data that are held of a person."""
