"""Writers that wake up late: every commit is tried once more, from what its writer knew of the table."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa

from twofold.infra.delta.delta_writer import CommitTag, Writer, Written

if TYPE_CHECKING:
    from deltalake import DeltaTable

    Attempt = Callable[[DeltaTable], None]


@dataclass
class Zombies:
    """Commits of the block `left` that somebody will make again.

    Attributes:
        asleep: they were not woken yet.
        fenced: application, without what names its stream or table -> zombies that lost against what is there.
    """

    dice: random.Random
    asleep: list[_Zombie] = field(default_factory=list)
    fenced: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def left(self) -> Iterator[None]:
        """Of every commit in this block a writer stays behind that was about to make it."""
        commit = Writer._commit

        def leaving(
            writer: Writer, rows: pa.Table, stamp: CommitTag, attempt: Attempt, extra: Collection[str] = ()
        ) -> Written:
            if "/_copies/" in writer.lake.uri(writer.name):  # of a plan, which is removed with it
                return commit(writer, rows, stamp, attempt, extra)
            zombie = _Zombie(writer, rows, stamp, attempt, extra)
            written = commit(writer, rows, stamp, attempt, extra)
            with self._lock:
                self.asleep.append(zombie)
            return written

        with patch.object(Writer, "_commit", leaving):
            yield

    def wake_one(self) -> None:
        """Let any one of them go on."""
        with self._lock:
            zombie = self.asleep.pop(self.dice.randrange(len(self.asleep))) if self.asleep else None
        if zombie and zombie.go_on():
            self.fenced[zombie.stamp.app.split("/")[0]] += 1


class _Zombie(Writer):
    """A writer that stopped after it had looked at the table and before it committed."""

    def __init__(
        self, writer: Writer, rows: pa.Table, stamp: CommitTag, attempt: Attempt, extra: Collection[str]
    ) -> None:
        super().__init__(writer.lake, writer.name)
        self._id, self._rows, self.stamp, self._attempt, self._extra = writer._id, rows, stamp, attempt, extra
        self._known: DeltaTable | None = writer.lake.open(writer.name)
        self._looks = 0

    def go_on(self) -> bool:
        """Commit; whether the table as it is now made it look again."""
        Writer._commit(self, self._rows, self.stamp, self._attempt, self._extra)
        return self._looks > 1

    def newest(self) -> DeltaTable:
        known, self._known, self._looks = self._known, None, self._looks + 1
        return known or super().newest()
