"""Every error that the algebra raises on purpose, under one root."""

from __future__ import annotations


class AlgebraError(Exception):
    """The root: mistakes of a function are no errors here, but values."""


class Unreadable(AlgebraError):
    """A function whose plan cannot be had without data, and why.

    Attributes:
        asks: the method by which it asks Spark for rows; empty: it does not.
    """

    def __init__(self, why: str, asks: str = "") -> None:
        super().__init__(why)
        self.asks = asks
