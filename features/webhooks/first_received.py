"""When each delivery was first received, for those whose body says no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from twofold.infra.sqlite_file import open_sqlite

KEPT = timedelta(days=3)
_PRUNED_EVERY = timedelta(minutes=10)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)

Key = tuple[str, str]
"""A topic and the id of a delivery."""


class FirstReceived:
    """The times at which deliveries were first received, in SQLite; used by one thread."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._connection = open_sqlite(file)
        self._pruned_at = datetime.min.replace(tzinfo=UTC)
        # A time that was answered for must be there after a crash of the machine.
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _TABLE, _INDEX):
            self._connection.execute(statement)

    def times(self, received: Sequence[tuple[Key, datetime]]) -> Mapping[Key, datetime]:
        """Keeps the times of deliveries that are new, and returns when each was first received; all of them or none.

        A time is kept for `KEPT`.

        Raises:
            sqlite3.Error: the disk is full, or the file is no database.
        """
        newest = max((at for _, at in received), default=None)
        if newest is None:
            return {}
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if newest - self._pruned_at >= _PRUNED_EVERY:
                self._connection.execute("DELETE FROM first_received WHERE at_us < ?", [_us(newest - KEPT)])
                self._pruned_at = newest
            rows = [(topic, id, _us(at)) for (topic, id), at in received]
            self._connection.executemany("INSERT INTO first_received VALUES (?, ?, ?) ON CONFLICT DO NOTHING", rows)
            found = {
                key: _EPOCH + self._connection.execute(_SELECT, key).fetchone()[0] * _US
                for key in dict.fromkeys(key for key, _ in received)
            }
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise
        return found

    def close(self) -> None:
        """Closes the database."""
        self._connection.close()


_TABLE = """
CREATE TABLE IF NOT EXISTS first_received (topic TEXT, id TEXT, at_us INTEGER NOT NULL, PRIMARY KEY (topic, id))
WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS by_time ON first_received (at_us)"
_SELECT = "SELECT at_us FROM first_received WHERE topic = ? AND id = ?"


def _us(moment: datetime) -> int:
    return (moment - _EPOCH) // _US
