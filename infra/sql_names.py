"""Quotes names and texts as DuckDB and PostgreSQL read them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Quotes an identifier, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quotes a text as a literal."""
    return "'" + text.replace("'", "''") + "'"
