"""The interface of targets: a copy or a row of changes, and its position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from twofold.features.outputs.position import Position


class Target(Protocol):
    """The copy of one output, with its position."""

    def position(self) -> Position | None:
        """Returns what the copy shows; None: nothing was ever sent."""

    def send(self, changes: pa.Table, before: Position | None, after: Position) -> None:
        """Changes the copy and moves its position, both or neither; rows that it cannot have are in the ledger before.

        Args:
            changes: rows of the view with `_change`: insert, update or delete; a key is there once.

        Raises:
            WriteConflict: the copy is not at `before`, since another process moved it. Retryable.
        """

    def has_room(self) -> bool:
        """Whether it can get the changes of another step now."""
        return True

    @property
    def has_another(self) -> bool:
        """Whether there is a copy that is to be replaced by this one."""
        return False

    def erase(self) -> None:
        """Removes what the copy has, its position included; nothing if it is not there."""

    def sent(self, schema: pa.Schema, page: int, pages: int) -> pa.Table:
        """Reads the rows of the copy whose keys belong to a page; none, if what was sent cannot be read.

        Args:
            schema: of the view; a column that the copy has not is null.
        """
        return schema.empty_table()

    def closed_ms_at(self, table_id: str, version: int) -> int | None:
        """Returns by when rows had closed as the changes of a version were sent, as far as that is known."""
        position = self.position()
        return position.closed_ms if position else None
