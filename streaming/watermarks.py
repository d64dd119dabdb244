"""Computes the watermark of each input of a table, and the input that holds the watermark back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic

if TYPE_CHECKING:
    from twofold.tables.declare.registry import Registry


def by_input(newest_ms: Callable[[Topic], int | None], registry: Registry, table: Table) -> dict[str, int | None]:
    """Maps each topic to its newest event time minus the table's delay, epoch milliseconds; None if it has no event.

    Once the stream has read all records, its watermark is the least of these (Spark's policy `min`). Empty for a table
    whose rows never close.

    Args:
        newest_ms: the newest event time of a topic, epoch milliseconds.
    """
    if not table.closes_at:
        return {}
    watermarks: dict[str, int | None] = {}
    for source in registry.upstream(table):
        if isinstance(source, Topic):
            newest = newest_ms(source)
            watermarks[source.full_name] = None if newest is None else newest - table.watermark_ms
    return watermarks


def held_back_by(marks: Mapping[str, int | None]) -> str | None:
    """Returns the input with the lowest watermark, the first one of several; None if there is no input."""
    return min(marks, key=lambda name: -1e18 if marks[name] is None else marks[name] or 0, default=None)
