"""The whole story on one screen."""

from __future__ import annotations


def demo() -> None:
    """Show everything on a month of real flights."""
