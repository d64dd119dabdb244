"""The position of an output: which rows of its table the copy shows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

NOTHING = -1
"""The version that has no rows yet."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """The rows that a copy shows, kept where the copy is.

    Attributes:
        definition: of the view, as `outputs.view.View` writes it.
        table_id: of the Delta table, which is another one if the table was made again; empty: what the copy shows is
            not known.
        version: of the table; `NOTHING`: the copy is empty.
        commit: a digest of the commit of that version: another one if the log was replaced, as by a backup.
        closed_ms: the copy has rows that had closed by then, epoch milliseconds; None: no row had, or all are shown.
        heading: the position to which pages of the keys move one after the other; None: all are here.
        page: the number of pages that show `heading` already, of `pages`.
    """

    definition: str
    table_id: str
    version: int
    commit: str
    closed_ms: int | None = None
    heading: Position | None = None
    page: int = 0
    pages: int = 1

    @classmethod
    def parsed(cls, text: str) -> Position:
        """Reads a position that `text` wrote."""
        values = json.loads(text)
        heading = values.pop("heading")
        return cls(**values, heading=heading and cls(**heading))

    @property
    def text(self) -> str:
        """The position as JSON."""
        return json.dumps(asdict(self))

    def towards(self, heading: Position, pages: int) -> Position:
        """Returns this position with a heading, before its first page."""
        return replace(self, heading=heading, page=0, pages=pages)

    def with_next_page(self) -> Position:
        """Returns the position after the next page."""
        if self.heading is not None and self.page + 1 == self.pages:
            return self.heading
        return replace(self, page=self.page + 1)

    def unknown(self) -> Position:
        """Returns the position of a copy whose rows must be read to be known."""
        return replace(self, table_id="", heading=None, page=0, pages=1)
