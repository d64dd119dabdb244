"""The interface of targets: a copy and its position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from outputs.position import Position


class Target(Protocol):
    """The copy of one output, with its position."""

    def position(self) -> Position | None:
        """Returns what the copy shows; None: nothing was ever sent."""

    def send(self, changes: pa.Table, before: Position | None, after: Position) -> int:
        """Changes the copy and moves its position, both or neither; returns how many rows it refused.

        Args:
            changes: rows of the view with `_change`: insert, update or delete; a key is there once.

        Raises:
            WriteConflict: the copy is not at `before`, since another process moved it. Retryable.
        """

    def sent(self, schema: pa.Schema, page: int, pages: int) -> pa.Table:
        """Reads the rows of the copy whose keys belong to a page.

        Args:
            schema: of the view; a column that the copy has not, or with another type, is null.

        Raises:
            ChangesGone: what was sent cannot be read.
        """
