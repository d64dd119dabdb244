"""Orders the commits of all streams of one table, also of streams from other homes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from twofold.infra import COMMAND
from twofold.infra.delta.delta_writer import CommitTag, Writer, Written
from twofold.infra.errors import WriteConflict
from twofold.streaming.maintain.closed_row_guard import ClosedRowGuard
from twofold.tables.refresh.acceptance import STREAM

if TYPE_CHECKING:
    from deltalake import DeltaTable


class _Owner(NamedTuple):
    """The last committer: the number of that commit, the stream, empty if unknown, and its micro-batch."""

    number: int
    stream: str
    batch: int


class StreamFence:
    """Orders the commits of the streams of one table: each takes the table's next number, as ingest's commits do.

    If two streams with state continue from the same commits, one succeeds. The other is refused from then on, since its
    rows may be older than the table's. Streams without state write the same rows in any order.

    Args:
        require: raises an error if the table at a version must not be written.
        has_state: one stream at a time writes the table.
    """

    def __init__(
        self, writer: Writer, require: Callable[[DeltaTable], object] = lambda table: None, *, has_state: bool = True
    ) -> None:
        self._writer, self._require, self._has_state = writer, require, has_state
        self._number: int | None = None

    def is_of_another(self, stream: str) -> bool:
        """Whether another stream than this one wrote the table last."""
        return self._look().stream not in ("", stream)

    def claim(self, stream: str, guard: ClosedRowGuard) -> None:
        """Makes this stream the only one that may write the table; it leaves the rows alone that are closed by now."""
        while self.is_of_another(stream):
            number = self._look().number
            guard.record_watermark_again()
            nothing = pa.schema(self._writer.newest().schema()).empty_table()
            self._writer.append(nothing, self._stamp(stream, -1, number + 1, {"cause": "stream"}))

    def commit(
        self, stream: str, batch: int, info: Mapping[str, object], write: Callable[[CommitTag], Written]
    ) -> Written:
        """Commits a micro-batch of the stream, once.

        Args:
            write: commits under a tag, unless there is nothing to write.

        Raises:
            DefinitionChanged: other code was accepted since; nothing was written.
            WriteConflict: another stream has written the table since; nothing was written.
        """
        while True:
            if self._number is None:
                owner = self._look()
                if self._has(owner, stream, batch):
                    return Written(skipped=True)
                self._number = owner.number
            written = write(self._stamp(stream, batch, self._number + 1, info))
            if not written.skipped:
                self._number += written.version is not None
                return written
            self._number = None  # another commit has it: whether one may go on is known by a look at that

    def _has(self, owner: _Owner, stream: str, batch: int) -> bool:
        """Whether the micro-batch was committed already.

        Raises:
            WriteConflict: another stream has written the table since.
        """
        if self._has_state and owner.stream not in ("", stream):
            raise _lost(self._writer.name, owner.stream)
        # Older versions committed under an application of each stream's own.
        own = self._writer.newest().transaction_version(f"{STREAM}/{stream}")
        return (owner.stream == stream and owner.batch >= batch) or (own is not None and own >= batch)

    def _look(self) -> _Owner:
        table = self._writer.newest()
        self._require(table)
        number = int(table.transaction_version(STREAM) or 0)
        info = self._writer.lake.newest_info(self._writer.name, STREAM, at=table.version()) if number else None
        return _Owner(number, str(info[STREAM]), int(info["batch"])) if info else _Owner(number, "", -1)

    @staticmethod
    def _stamp(stream: str, batch: int, number: int, info: Mapping[str, object]) -> CommitTag:
        return CommitTag(app=STREAM, version=number, info={**info, STREAM: stream, "batch": batch})


def _lost(name: str, stream: str) -> WriteConflict:
    return WriteConflict(
        f"{name}: another stream has written the table since this one did: {stream}.",
        hint=f"Stop one of the drivers: `{COMMAND} status` in each home lists them. A stream that is started again "
        "goes on from a snapshot of its inputs.",
    )
