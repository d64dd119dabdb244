"""Compares the copy of an output with its table."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from twofold.features.outputs.next_step import MOST_ROWS, page_of
from twofold.features.outputs.revealed import Revealed
from twofold.infra.delta.lake import Lake
from twofold.infra.rows.rows import count
from twofold.tables.output_view import KEY, View
from twofold.tables.refresh.row_diff import difference

if TYPE_CHECKING:
    from twofold.features.outputs.output_target import Target
    from twofold.tables.declare.table import Table


@dataclass(frozen=True, kw_only=True)
class ComparedCopy:
    """A copy and its table.

    Attributes:
        version: of the table, that the copy shows.
        rows: that it should have, of those compared.
        differing: those that are missing, extra or changed.
    """

    version: int
    rows: int
    differing: int


def compare_copy(lake: Lake, table: Table, target: Target, turn: int = 0, of: int = 1) -> ComparedCopy | None:
    """Compares a copy with the version of the table that it shows; None if it is on its way, or moves meanwhile.

    A copy that has still values of persons who were forgotten is on its way.

    Args:
        turn, of: which share of the keys is compared, of how many.

    Raises:
        ChangesGone: that version cannot be read any more.
    """
    position = target.position()
    if position is None or position.heading is not None or not position.table_id:
        return None
    view = View.parsed(position.definition)
    pages = of * max(1, ceil(int(lake.open(table.full_name, position.version).count()) / of / MOST_ROWS))
    rows = differing = 0
    with closing(Revealed(lake.settings, f"audit {table.full_name}")) as revealed:
        for page in range(turn, pages, of):
            should = page_of(lake, table.full_name, position, page, pages, revealed.now)
            rows += len(should)
            differing += count(difference(should, target.sent(should.schema, page, pages), [KEY]))
        if target.position() != position or revealed.forgotten(view) != position.forgotten:
            return None
    return ComparedCopy(version=position.version, rows=rows, differing=differing)
