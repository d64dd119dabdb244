"""The queue of a webhook: changes wait in SQLite until the receiver has them; the position moves as they come in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from itertools import groupby
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from twofold.features.outputs import json_rows
from twofold.features.outputs.output_target import Target
from twofold.features.outputs.position import Position
from twofold.features.outputs.refused_rows import Refused, record_refused
from twofold.features.outputs.revealed_places import Place
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadSetting, WriteConflict
from twofold.infra.private_file import destination, private_folder
from twofold.infra.sqlite_file import open_sqlite
from twofold.infra.webhooks.signatures import secret_fault
from twofold.tables.declare.output import Output
from twofold.tables.refresh.json_values import to_json

MOST_WAITING = 10_000
"""As many waiting changes hold the reader of the table; one step can bring more."""
_KEPT_VERSIONS = 100_000
_TABLES = """
CREATE TABLE IF NOT EXISTS position (one INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS closed (table_id TEXT, version INTEGER, ms INTEGER, PRIMARY KEY (table_id, version));
CREATE TABLE IF NOT EXISTS changes
    (number INTEGER PRIMARY KEY, id TEXT UNIQUE, key TEXT, version INTEGER, body TEXT, tries INTEGER DEFAULT 0,
     first_at REAL, answer TEXT DEFAULT '', refused INTEGER DEFAULT 0, due_at REAL);
CREATE INDEX IF NOT EXISTS by_key ON changes (key, number) WHERE refused = 0;
CREATE INDEX IF NOT EXISTS by_time ON changes (due_at) WHERE due_at IS NOT NULL
"""
"""Only the oldest change of a key that is not refused is due at some time."""
_OLDEST_IS_DUE = (
    "UPDATE changes SET due_at = 0 WHERE due_at IS NULL "
    "AND number = (SELECT min(number) FROM changes WHERE key = ? AND refused = 0)"
)

_REFUSED_BEFORE = "refused = 1 AND first_at < ?"


class Change(NamedTuple):
    """A change that waits.

    Attributes:
        id: the same whenever it is sent.
        key: of the row, as JSON.
        version: of the table.
        tries: how often it was sent.
        first_at: when it was first sent, seconds since 1970; None: never.
        answer: why the last try failed.
    """

    id: str
    key: str
    version: int
    body: str
    tries: int
    first_at: float | None
    answer: str = ""


class WebhookQueue(Target):
    """The target of a webhook in a file of the home; each call opens it."""

    def __init__(self, lake: Lake, place: Place, output: Output) -> None:
        self._lake, self._place, self.table = lake, place, place.table
        self.file = lake.settings.home / "outputs" / f"{place.table}.{place.output}.sqlite"

    def receiver(self) -> tuple[str, Sequence[str]]:
        """Returns the URL of the receiver and its secrets, which no error shows.

        Raises:
            BadSetting: the destination has none.
        """
        name = self._place.destination
        url, *secrets = destination(self._lake.settings.destinations, name).split()
        faults = [f"its secret cannot be used: {why}" for text in secrets if (why := secret_fault("standard", text))]
        if not secrets:
            faults.append("its secret is missing")
        with suppress(ValueError):
            parts = urlsplit(url)
            if parts.scheme in ("https", "http") and parts.hostname and parts.port != 0 and not faults:
                return url, secrets
        raise BadSetting(
            f"The destination {name!r} of {self.table}: {(faults or ['expected a URL that begins with https://'])[0]}.",
            hint=f"Write it as `{name} = https://host/path whsec_...`.",
        )

    def position(self) -> Position | None:
        with self._transaction() as connection:
            return _position(connection)

    def has_room(self) -> bool:
        return self.waiting()[0] < MOST_WAITING

    def send(self, changes: pa.Table, before: Position | None, after: Position) -> None:
        at = after.ahead
        forgotten = [at.forgotten] if before is not None and before.forgotten != at.forgotten else []
        refused: list[Refused] = []
        self.receiver()  # nothing waits for one without an address
        with self._transaction() as connection:
            if _position(connection) != before:
                raise WriteConflict(f"{self.table}: another process has moved the queue {self.file.name}.")
            connection.execute("INSERT OR REPLACE INTO position VALUES (0, ?)", [after.text])
            if after.closed_ms is not None:
                state = [after.table_id, after.version, after.closed_ms]
                connection.execute("INSERT OR REPLACE INTO closed VALUES (?, ?, ?)", state)
                connection.execute("DELETE FROM closed WHERE version < ?", [after.version - _KEPT_VERSIONS])
            for key, change in json_rows.json_changes(changes, refused):
                # A change that is sent again comes after those that are sent again before it.
                connection.execute(
                    "INSERT OR REPLACE INTO changes (id, key, version, body) VALUES (?, ?, ?, ?)",
                    [_id(at, key, *forgotten), key, at.version, _body(self.table, at.version, key, change)],
                )
                connection.execute(_OLDEST_IS_DUE, [key])
            if refused:
                record_refused(self._lake, self._place, at.version, refused)

    def erase(self) -> None:
        self.file.unlink(missing_ok=True)

    def closed_ms_at(self, table_id: str, version: int) -> int | None:
        with self._transaction() as connection:
            select = "SELECT ms FROM closed WHERE table_id = ? AND version <= ? ORDER BY version DESC LIMIT 1"
            row = connection.execute(select, [table_id, version]).fetchone()
        return row[0] if row else super().closed_ms_at(table_id, version)

    def due(self, now: float, at_most: int) -> list[Change]:
        """Returns changes to be sent, each the oldest of its key."""
        columns = ", ".join(Change._fields)
        with self._transaction() as connection:
            select = f"SELECT {columns} FROM changes WHERE due_at <= ? ORDER BY due_at, number LIMIT ?"
            return list(map(Change._make, connection.execute(select, [now, at_most])))

    def accept(self, changes: Sequence[Change]) -> None:
        """Removes changes that the receiver has."""
        with self._transaction() as connection:
            for change in changes:
                connection.execute("DELETE FROM changes WHERE id = ?", [change.id])
                connection.execute(_OLDEST_IS_DUE, [change.key])

    def postpone(self, change: Change, due_at: float) -> None:
        """Keeps a change that was tried, with the answer, until another try, if it is still the oldest of its key."""
        with self._transaction() as connection:
            state = [change.tries, change.first_at, change.answer, due_at, change.id]
            kept = "UPDATE changes SET tries = ?, first_at = ?, answer = ?, due_at = ?"
            connection.execute(f"{kept} WHERE id = ? AND due_at IS NOT NULL", state)

    def refuse(self, changes: Sequence[Change]) -> None:
        """Sets changes aside, so that later ones of their keys are sent; the ledger has them before."""
        for version, some in groupby(sorted(changes, key=lambda c: c.version), lambda c: c.version):
            rows = [Refused(key=change.key, reason=change.answer) for change in some]
            record_refused(self._lake, self._place, version, rows)
        with self._transaction() as connection:
            for change in changes:
                connection.execute("UPDATE changes SET refused = 1, due_at = NULL WHERE id = ?", [change.id])
                connection.execute(_OLDEST_IS_DUE, [change.key])

    def retry(self) -> int:
        """Queues the refused changes again, before the later ones of their keys; returns their number."""
        with self._transaction() as connection:
            keys = connection.execute("SELECT DISTINCT key FROM changes WHERE refused = 1").fetchall()
            connection.executemany("UPDATE changes SET due_at = NULL WHERE key = ?", keys)
            again = "UPDATE changes SET refused = 0, tries = 0, first_at = NULL, answer = '' WHERE refused = 1"
            number = connection.execute(again).rowcount
            connection.executemany(_OLDEST_IS_DUE, keys)
        return number

    def refused_before(self, moment: float) -> tuple[int, int]:
        """Returns how many changes are refused that were first sent before a moment, epoch seconds; and their bytes."""
        with self._transaction() as connection:
            select = f"SELECT count(*), coalesce(sum(length(body)), 0) FROM changes WHERE {_REFUSED_BEFORE}"
            number, size = connection.execute(select, [moment]).fetchone()
        return number, size

    def forget(self, moment: float) -> None:
        """Removes such changes, which the ledger has by their keys."""
        with self._transaction() as connection:
            connection.execute(f"DELETE FROM changes WHERE {_REFUSED_BEFORE}", [moment])

    def waiting(self) -> tuple[int, str]:
        """Returns how many changes wait, and why the one that was tried most often does."""
        with self._transaction() as connection:
            [number] = connection.execute("SELECT count(*) FROM changes WHERE refused = 0").fetchone()
            failing = "SELECT answer FROM changes WHERE due_at IS NOT NULL AND tries > 0 ORDER BY tries DESC LIMIT 1"
            [answer] = connection.execute(failing).fetchone() or [""]
        return number, answer

    def tried_since(self) -> float | None:
        """Returns when the first of the changes that are to be tried again was first tried, seconds since 1970."""
        with self._transaction() as connection:
            first = "SELECT min(first_at) FROM changes WHERE due_at IS NOT NULL AND tries > 0"
            [at] = connection.execute(first).fetchone()
        return None if at is None else float(at)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        private_folder(self.file.parent)
        with closing(open_sqlite(self.file, wait_s=60)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            yield connection  # what is not committed is rolled back when it closes
            connection.execute("COMMIT")


def _position(connection: sqlite3.Connection) -> Position | None:
    row = connection.execute("SELECT text FROM position").fetchone()
    return Position.parsed(row[0]) if row else None


def _id(at: Position, key: str, *forgotten: int) -> str:
    """Returns the id of a change: another one for each that a key can have, the same if the table is read again.

    Args:
        forgotten: the number of the end of keys that is the change.
    """
    parts = (at.table_id, at.version, at.definition, at.closed_ms, key, *forgotten)
    return f"msg_{sha256(repr(parts).encode()).hexdigest()[:32]}"


def _body(table: str, version: int, key: str, change: json_rows.Sides) -> str:
    kind, before, after = change
    head = to_json({"table": table, "version": version, "change": kind})
    return f'{head[:-1]}, "key": {key}, {to_json({"before": before, "after": after})[1:]}'
