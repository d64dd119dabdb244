"""The status store: what was last known of the platform, in one SQLite file of the home; readers never wait."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from twofold.infra.project.settings import Settings
from twofold.infra.sqlite_file import open_sqlite
from twofold.infra.text.printable import document
from twofold.status.parts.series import SPANS, SeriesPoint, SeriesUpdate, Span, merged

FORMAT = 3
"""Of the file; one of another format is made again, since all of it can be read from the platform again."""
_TABLES = """
CREATE TABLE heads (name TEXT PRIMARY KEY, version INTEGER, digest TEXT, facts TEXT) WITHOUT ROWID;
CREATE TABLE series (
    name TEXT, width INTEGER, at INTEGER, point TEXT, PRIMARY KEY (name, width, at)
) WITHOUT ROWID;
CREATE TABLE latest (what TEXT PRIMARY KEY, at TEXT, value TEXT) WITHOUT ROWID;
"""
_PATIENCE_S = 1.0  # of a reader, while a first writer makes the tables
_log = logging.getLogger("twofold.status")


@dataclass(frozen=True)
class TableVersion:
    """Facts of a Delta table at one version; they can be old, never wrong.

    Attributes:
        digest: of the version's commit, which no other table or history has.
        facts: name -> value, as JSON has it.
    """

    version: int
    digest: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Latest:
    """A document, and when it was true."""

    at: datetime
    value: Any


class Store:
    """Reads and replaces what was last known; without a file, or with a damaged one, nothing is known."""

    def __init__(self, settings: Settings) -> None:
        self._file = settings.home / "status.sqlite"

    def table_versions(self) -> dict[str, TableVersion]:
        """Returns the facts of all tables by name."""
        rows = self._read("SELECT name, version, digest, facts FROM heads")
        return {name: TableVersion(version, digest, json.loads(facts)) for name, version, digest, facts in rows}

    def latest(self, what: str) -> Latest | None:
        """Returns a document that was saved, None if there is none."""
        rows = self._read("SELECT at, value FROM latest WHERE what = ?", what)
        return next((Latest(datetime.fromisoformat(at), json.loads(value)) for at, value in rows), None)

    def series(self, name: str, span: Span, now: datetime) -> list[tuple[datetime, SeriesPoint | None]]:
        """Returns the buckets of a span with what is known of a topic or table in each, oldest first, now's last."""
        last = int(now.timestamp()) // span.width_s * span.width_s
        first = last - (span.buckets - 1) * span.width_s
        query = "SELECT at, point FROM series WHERE name = ? AND width = ? AND at BETWEEN ? AND ?"
        rows = self._read(query, name, span.width_s, first, last)
        points = {at: SeriesPoint(**json.loads(point)) for at, point in rows}
        starts = range(first, last + 1, span.width_s)
        return [(datetime.fromtimestamp(start, UTC), points.get(start)) for start in starts]

    def save(
        self,
        table_versions: Mapping[str, TableVersion],
        *,
        updates: Mapping[str, SeriesUpdate] | None = None,
        **documents: object,
    ) -> bool:
        """Replaces the facts of all tables, and these documents; returns False while another process does.

        Nothing is raised: who saves has a use of its own for what it knows.

        Args:
            updates: what is new of topics and tables; commits that another process has saved meanwhile are left out.
        """
        now = datetime.now(UTC)
        try:
            with closing(self._writable()) as db, db:
                db.execute("BEGIN IMMEDIATE")
                versions = dict(db.execute("SELECT name, version FROM heads"))
                for name, update in (updates or {}).items():
                    commits = update.commits if versions.get(name) == update.after else ()
                    _extend(db, name, [*commits, (int(now.timestamp() * 1_000), update.sample)])
                db.execute("DELETE FROM heads")
                rows = ((name, at.version, at.digest, document(at.facts)) for name, at in table_versions.items())
                db.executemany("INSERT INTO heads VALUES (?, ?, ?, ?)", rows)
                values = ((what, now.isoformat(), document(value)) for what, value in documents.items())
                db.executemany("INSERT OR REPLACE INTO latest VALUES (?, ?, ?)", values)
        except (sqlite3.Error, OSError) as error:
            _log.info("not saved file=%s error=%s", self._file, error)
            return False
        return True

    def _writable(self) -> sqlite3.Connection:
        """Opens the file for a writer, which does not wait for another one; makes it if it cannot be used."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        try:
            if (db := self._opened()) is not None:
                return db
        except sqlite3.OperationalError:  # in use
            raise
        except sqlite3.DatabaseError as error:
            _log.warning("made again file=%s error=%s", self._file, error)
        for suffix in ("", "-wal", "-shm"):
            self._file.with_name(self._file.name + suffix).unlink(missing_ok=True)
        db = open_sqlite(self._file, wait_s=0)
        db.executescript(f"PRAGMA journal_mode=WAL; BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={FORMAT}; COMMIT;")
        return db

    def _opened(self) -> sqlite3.Connection | None:
        if not self._file.exists():
            return None
        db = open_sqlite(self._file, wait_s=0)
        if _is_ours(db):
            return db
        db.close()
        return None

    def _read(self, query: str, *values: str | int) -> list[tuple[Any, ...]]:
        try:
            with self._readable() as db:
                return db.execute(query, values).fetchall() if db and _is_ours(db) else []
        except sqlite3.Error as error:
            _log.warning("unread file=%s error=%s", self._file, error)
            return []

    @contextmanager
    def _readable(self) -> Iterator[sqlite3.Connection | None]:
        if not self._file.exists():
            yield None
            return
        with closing(open_sqlite(self._file, wait_s=_PATIENCE_S, read_only=True)) as db:
            yield db


def _extend(db: sqlite3.Connection, name: str, points: Sequence[tuple[int, SeriesPoint]]) -> None:
    """Adds points of these moments, epoch milliseconds, to the buckets of each span, and removes those before it."""
    of_bucket = "name = ? AND width = ? AND at = ?"
    for span in SPANS:
        buckets: dict[int, list[SeriesPoint]] = defaultdict(list)
        for at_ms, point in points:
            buckets[at_ms // 1_000 // span.width_s * span.width_s].append(point)
        oldest = max(buckets) - (span.buckets - 1) * span.width_s
        for start in sorted(start for start in buckets if start >= oldest):
            known = db.execute(f"SELECT point FROM series WHERE {of_bucket}", (name, span.width_s, start)).fetchall()
            whole = merged([*(SeriesPoint(**json.loads(text)) for (text,) in known), *buckets[start]])
            row = (name, span.width_s, start, document(whole.known))
            db.execute("INSERT OR REPLACE INTO series VALUES (?, ?, ?, ?)", row)
        db.execute("DELETE FROM series WHERE name = ? AND width = ? AND at < ?", (name, span.width_s, oldest))


def _is_ours(db: sqlite3.Connection) -> bool:
    return bool(db.execute("PRAGMA user_version").fetchone()[0] == FORMAT)
