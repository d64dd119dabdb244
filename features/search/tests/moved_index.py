"""An index of a small table, moved on by what moves it in the real process, which ends between any two writes."""

from __future__ import annotations

import shutil
from typing import Any

from twofold.features.outputs.follow.output_state import StateFile
from twofold.features.outputs.tests.moved_outputs import MovedOutput, Row, without_key
from twofold.features.search import search_index
from twofold.features.search.search_index import SearchIndex
from twofold.infra.delta.history import History
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.output import Output
from twofold.tables.declare.table import Table

WRITES: list[tuple[Any, str]] = [
    (search_index, "write_atomically"),
    (SearchIndex, "_change"),
    (SearchIndex, "_document"),
    (shutil, "rmtree"),
    (StateFile, "note_position"),
    (History, "note"),
]
"""What an index calls before each of its writes, and after the last."""


def moved_index(lake: Lake, table: Table, output: Output, page: int = 3) -> MovedOutput:
    """An output `to_search` with its index."""
    return MovedOutput(lake, table, output, page, WRITES, shows=indexed)


def indexed(moved: MovedOutput) -> list[Row]:
    """The rows of an index."""
    index = moved.target
    assert isinstance(index, SearchIndex)
    return without_key(index._stored())
