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
            not known, and is read from it.
        version: of the table; `NOTHING`: the copy is empty.
        commit: a digest of the commit of that version: another one if the log was replaced, as by a backup.
        forgotten: the number of the last end of a person's key before rows were read, of an output that reveals values
            of persons; what ended later may be in the copy.
        closed_ms: the copy has rows that had closed by then, epoch milliseconds; None: no row had, or all are shown.
        heading: the position to which pages of the keys move one after the other; None: all are here.
        page: the number of pages that show `heading` already, of `pages`.
    """

    definition: str
    table_id: str
    version: int
    commit: str
    forgotten: int = 0
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

    @property
    def ahead(self) -> Position:
        """The heading; once all pages show it, the position itself."""
        return self.heading or self

    def towards(self, heading: Position, pages: int) -> Position:
        """Returns this position with a heading, before its first page."""
        return replace(self, heading=heading, page=0, pages=pages)

    @property
    def is_whole(self) -> bool:
        """Whether all pages show the heading, and only what was replaced is to be erased before the copy is there."""
        return self.heading is not None and self.page == self.pages

    def with_next_page(self) -> Position:
        """Returns the position after the next page, or after what was replaced is erased."""
        if self.heading is None or ((self.page + 1 < self.pages or self._erases) and not self.is_whole):
            return replace(self, page=self.page + 1)
        return self.heading

    @property
    def _erases(self) -> bool:
        """Whether what is replaced on the way to the heading has values that are shown no more."""
        assert self.heading is not None
        shown = [set(json.loads(position.definition).get("reveal", ())) for position in (self, self.heading)]
        return self.heading.forgotten != self.forgotten or not shown[0] <= shown[1]

    def between(self) -> Position:
        """Returns the position of a copy that is being changed, by a target that has no transactions.

        The step can be cut short, and the table go back before another one: the rows on this way are read, too.
        """
        return replace(self, table_id="")

    def unknown(self) -> Position:
        """Returns the position of a copy whose rows must be read to be known."""
        return replace(self, table_id="", heading=None, page=0, pages=1)
