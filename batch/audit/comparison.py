"""The comparison of rows with what another system has of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A table or topic, compared with another system.

    Attributes:
        subject: the table or the topic.
        other: what it was compared with, for people.
        rows: that were compared; None: none was, see `fault`, or the other system is on its way.
        differing: those that are missing, extra or changed.
        left_out: columns that are not compared.
        fault: for people; empty: none.
    """

    subject: str
    other: str
    rows: int | None = None
    differing: int = 0
    left_out: Sequence[str] = ()
    fault: str = ""
