"""Keeps a Delta table open and updates it to its newest version at each use."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from twofold.infra.delta.lake import Lake

_TRUSTED_S = 60.0
_FURTHER = 60  # versions: then it is opened from a newer checkpoint


class OpenTable:
    """Checks for the file of the next commit, and updates through delta-rs only if there is one.

    Asking delta-rs costs 0.1 ms of CPU for each commit since the checkpoint that the table was opened from, to look for
    a file 0.05 ms in all. Files that an open table names are read when they are needed, and may be gone by then. The
    table is opened again after a trim; and after a minute, since another program may have cleaned up.

    Args:
        clock: seconds, as `time.monotonic` has them.
    """

    def __init__(self, lake: Lake, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lake, self._name, self._clock = lake, name, clock
        self._history, self._edition = lake.history(name), (0, 0)
        self._table: DeltaTable | None = None
        self._opened_at, self._looked_at = 0, 0.0

    def newest(self) -> DeltaTable:
        """Returns the table at its newest version; the part of its log that was read before is not read again."""
        now, edition = self._clock(), self._history.edition()
        table = None if edition != self._edition or now - self._looked_at > _TRUSTED_S else self._table
        if table is None or table.version() - self._opened_at > _FURTHER:
            self._edition = edition
            table = self._table = self._lake.open(self._name)
            self._opened_at = table.version()
        elif self._lake.has_version(self._name, table.version() + 1):
            table.update_incremental()
        self._looked_at = now
        return table

    def checkpoint(self) -> None:
        """Writes a checkpoint of the newest version and continues from it."""
        self.newest().create_checkpoint()
        self._table = None
