"""The interfaces of targets: a copy or a row of changes, and its position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from twofold.infra import COMMAND
from twofold.infra.errors import ChangesGone

if TYPE_CHECKING:
    import pyarrow as pa

    from twofold.outputs.position import Position


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

    def has_room(self) -> bool:
        """Whether it can get the changes of another step now."""
        return True

    def erase(self) -> None:
        """Removes what the copy has, its position included; nothing if it is not there."""

    def sent(self, schema: pa.Schema, page: int, pages: int) -> pa.Table:
        """Reads the rows of the copy whose keys belong to a page.

        Args:
            schema: of the view; a column that the copy has not is null.

        Raises:
            ChangesGone: what was sent cannot be read.
        """


class ChangeTarget(Target, Protocol):
    """The interface of a target that gets the changes of each commit, and cannot be read."""

    def closed_ms_at(self, table_id: str, version: int) -> int | None:
        """Returns by when rows had closed as the changes of a version were sent, as far as that is known."""


def unreadable(table: str) -> ChangesGone:
    """Builds the error of what cannot be read."""
    return ChangesGone(
        f"{table}: what changed after the last version that was sent cannot be known: that version is gone, or the "
        "table was made again.",
        hint=f"{COMMAND} outputs resend {table} --from N sends what changed after version N, --from now only what "
        "changes from now on.",
        table=table,
    )
