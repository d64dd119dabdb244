"""Lets one stream at a time write a table that is kept with state, of whichever home it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa

from infra.delta.delta_writer import CommitTag, Writer, Written
from infra.errors import WriteConflict
from streaming.maintain.closed_row_guard import ClosedRowGuard

STREAM = "stream"
"""The application under which streams with state commit, and the key under which a commit says which stream it was."""


class _Owner(NamedTuple):
    """Who committed last: the number of that commit, the stream, empty where none is known, and its micro-batch."""

    number: int
    stream: str
    batch: int


class StreamFence:
    """Between the streams of one table: each commit takes the table's next number, as ingest's do.

    Of two streams that know of the same commits one can go on. The other is refused from then on: its rows may be older
    than those that are there.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._number: int | None = None

    def is_of_another(self, stream: str) -> bool:
        """Whether another stream than this one wrote the table last."""
        return self._look().stream not in ("", stream)

    def claim(self, stream: str, guard: ClosedRowGuard) -> None:
        """Let this stream write the table from now on, and no other; what is closed by now it leaves alone."""
        while self.is_of_another(stream):
            number = self._look().number
            guard.record_watermark_again()
            nothing = pa.schema(self._writer.newest().schema()).empty_table()
            self._writer.append(nothing, self._stamp(stream, -1, number + 1, {"cause": "stream"}))

    def commit(
        self, stream: str, batch: int, info: Mapping[str, object], write: Callable[[CommitTag], Written]
    ) -> Written:
        """Let the stream commit a micro-batch, once.

        Args:
            write: commits under a tag, unless nothing is to be done.

        Raises:
            WriteConflict: another stream has written the table since; nothing was written.
        """
        if self._number is None:
            owner = self._look()
            if self._has(owner, stream, batch):
                return Written(skipped=True)
            self._number = owner.number
        written = write(self._stamp(stream, batch, self._number + 1, info))
        if written.skipped:
            self._number = None
            if not self._has(self._look(), stream, batch):
                raise _lost(self._writer.name, stream)
        elif written.version is not None:
            self._number += 1
        return written

    def _has(self, owner: _Owner, stream: str, batch: int) -> bool:
        """Whether the micro-batch is in already.

        Raises:
            WriteConflict: another stream has written the table since.
        """
        if owner.stream not in ("", stream):
            raise _lost(self._writer.name, owner.stream)
        # Older versions committed under an application of each stream's own.
        own = self._writer.newest().transaction_version(f"{STREAM}/{stream}")
        return (bool(owner.stream) and owner.batch >= batch) or (own is not None and own >= batch)

    def _look(self) -> _Owner:
        table = self._writer.newest()
        number = int(table.transaction_version(STREAM) or 0)
        info = self._writer.lake.newest_info(self._writer.name, STREAM, at=table.version()) if number else None
        return _Owner(number, str(info[STREAM]), int(info["batch"])) if info else _Owner(number, "", -1)

    @staticmethod
    def _stamp(stream: str, batch: int, number: int, info: Mapping[str, object]) -> CommitTag:
        return CommitTag(app=STREAM, version=number, info={**info, STREAM: stream, "batch": batch})


def _lost(name: str, stream: str) -> WriteConflict:
    return WriteConflict(
        f"{name}: another stream has written the table since this one did: {stream}.",
        hint="Stop one of the drivers: `./twofold status` in each home lists them. A stream that is started again goes "
        "on from a snapshot of its inputs.",
    )
