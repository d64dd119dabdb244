"""Compares the copy of an output with the table, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from infra.delta.lake import Lake
from infra.rows.rows import count
from outputs.next_step import MOST_ROWS, page_of
from outputs.view import KEY
from tables.refresh.row_diff import difference

if TYPE_CHECKING:
    from outputs.output_target import Target
    from tables.declare.table import Table


@dataclass(frozen=True, kw_only=True)
class ComparedCopy:
    """A copy and its table.

    Attributes:
        version: of the table, that the copy shows.
        rows: that it should have.
        differing: those that are missing, extra or changed.
    """

    version: int
    rows: int
    differing: int


def compare_copy(lake: Lake, table: Table, target: Target) -> ComparedCopy | None:
    """Compares a copy with the version of the table that it shows; None if it is on its way, or moves meanwhile.

    Raises:
        ChangesGone: that version cannot be read any more.
    """
    position = target.position()
    if position is None or position.heading is not None or not position.table_id:
        return None
    pages = max(1, ceil(int(lake.open(table.full_name, position.version).count()) / MOST_ROWS))
    rows = differing = 0
    for page in range(pages):
        should = page_of(lake, table.full_name, position, page, pages)
        rows += len(should)
        differing += count(difference(should, target.sent(should.schema, page, pages), [KEY]))
    if target.position() != position:
        return None
    return ComparedCopy(version=position.version, rows=rows, differing=differing)
