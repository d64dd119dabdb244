"""The keys of persons, in SQLite: made at the first use, ended for good when a person is forgotten."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from threading import RLock
from typing import NamedTuple

from twofold.features.persons.keys.ciphertext import Key
from twofold.features.persons.keys.ended_keys import End, EndedKeys
from twofold.features.persons.keys.key_of_keys import BYTES, KeyOfKeys, read_keys_of_keys, write_keys_of_keys
from twofold.features.persons.keys.key_store_file import open_keys, require_private
from twofold.infra.atomic_write import settle
from twofold.infra.errors import BadArgument, BadSetting
from twofold.infra.process.file_locks import exclusive
from twofold.infra.project.settings import Settings
from twofold.infra.sqlite_file import open_sqlite

_SECRET_BYTES, _ID_BYTES = 64, 16
_MOST_KEPT = 100_000
_DUE = "wrapped IS NOT NULL AND forget_at_ms <= ?"
_END = f"UPDATE person SET wrapped = NULL, forgotten_no = ? WHERE {_DUE}"
_END_AGAIN = (
    "INSERT INTO person VALUES (?, ?, ?, NULL, ?, ?) ON CONFLICT (ref) DO UPDATE SET wrapped = NULL, "
    "forget_at_ms = coalesce(forget_at_ms, excluded.forget_at_ms), forgotten_no = excluded.forgotten_no"
)


class Person(NamedTuple):
    """Whose data it is.

    Attributes:
        kind: `customer` for example.
        id: by which its data name it.
    """

    kind: str
    id: str


class KeyState(NamedTuple):
    """The state of one person's key.

    Attributes:
        kind: of the person.
        key_id: as ciphertext has it; it stays when the key has ended.
        forget_at_ms: when the key ends, or ended; None: it does not.
        forgotten_no: the number of its end; None: the key has not ended.
    """

    kind: str
    key_id: bytes
    forget_at_ms: int | None
    forgotten_no: int | None

    @property
    def is_forgotten(self) -> bool:
        """Whether the key has ended."""
        return self.forgotten_no is not None


class Counts(NamedTuple):
    """Counts of persons of a kind: with a key, of these about to be forgotten, and forgotten."""

    kept: int
    in_grace: int
    forgotten: int


class KeyStore:
    """The keys of persons; may be used by several threads, and several processes may have it open."""

    def __init__(self, settings: Settings, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """Opens the store, and ends the keys that are due, or have ended by the lake while a backup has them.

        Raises:
            BadSetting: there is no store or no key of keys, they do not belong together, or others can read them.
        """
        self._settings, self._file, self._now_ms = settings, settings.keys_file, now_ms
        require_private(settings)
        self._lock = RLock()
        self._ends = EndedKeys(settings)
        self._key_of_keys: KeyOfKeys
        self._index: bytes
        self._connection = open_keys(self._file)
        self._version = -1
        self._by_person: dict[Person, tuple[Key | None, int | None]] = {}
        self._by_id: dict[bytes, tuple[Key | None, int | None, bool]] = {}
        self._refresh()
        self.end_due()

    def close(self) -> None:
        """Closes the store."""
        self._connection.close()

    def keys_of(self, persons: Iterable[Person], *, until_ms: int | None = None) -> Mapping[Person, Key | None]:
        """Returns the key of each person, made and on disk if it is new; None: the person is forgotten.

        Args:
            until_ms: when the keys that are made end, epoch milliseconds; None: when the person is forgotten.
        """
        with self._lock:
            self._refresh()
            wanted = dict.fromkeys(persons)
            missing = [person for person in wanted if person not in self._by_person]
            if missing:
                self._load(missing, until_ms)
            return {person: self._valid(self._by_person[person]) for person in wanted}

    def find(self, key_id: bytes, *, of_persons: bool = False) -> Key | None:
        """Returns the key of an id; None if there is none any more, or it is no person's and only those are wanted."""
        with self._lock:
            self._refresh()
            if len(self._by_id) > _MOST_KEPT:
                self._by_id.clear()
            if key_id not in self._by_id:
                select = "SELECT wrapped, forget_at_ms, kind FROM person WHERE key_id = ?"
                wrapped, at_ms, kind = self._connection.execute(select, [key_id]).fetchone() or (None, None, "")
                self._by_id[key_id] = (self._unwrapped(key_id, wrapped), at_ms, not kind.startswith("_"))
            key, at_ms, is_persons = self._by_id[key_id]
            return self._valid((key, at_ms)) if is_persons or not of_persons else None

    def last_end(self) -> int:
        """Returns the number of the last end of a person's key; 0: none has ended."""
        with self._lock:
            select = "SELECT max(forgotten_no) FROM person WHERE substr(kind, 1, 1) <> '_'"
            return int(self._connection.execute(select).fetchone()[0] or 0)

    def ended_after(self, key_id: bytes, number: int) -> bool:
        """Whether a key that `find` does not return ended after an end of this number, or was lost with the store."""
        with self._lock:
            select = "SELECT forgotten_no FROM person WHERE key_id = ?"
            row = self._connection.execute(select, [key_id]).fetchone()
            return row is None or row[0] is None or row[0] > number

    def ref(self, person: Person) -> str:
        """Returns the name of a person in ledgers: hexadecimal digits that say nothing without the store."""
        return self._ref(person).hex()

    def state_of(self, person: Person) -> KeyState | None:
        """Returns the state of a person's key; None if there was never one."""
        with self._lock:
            self._refresh()
            return self.state(self.ref(person))

    def state(self, ref: str) -> KeyState | None:
        """Returns the state of the key of the person with a `ref`; None if there was never one."""
        with self._lock:
            select = "SELECT kind, key_id, forget_at_ms, forgotten_no FROM person WHERE ref = ?"
            row = self._connection.execute(select, [bytes.fromhex(ref)]).fetchone()
            return row and KeyState(*row)

    def forget(self, person: Person, at_ms: int) -> None:
        """Lets a person's key end at a time, at once if it has passed; one who has no key yet gets none after that."""
        self.keys_of([person])
        self.forget_ref(self.ref(person), at_ms)

    def forget_ref(self, ref: str, at_ms: int) -> None:
        """Lets the key of the person with a `ref` end, as `forget`; nothing if the store does not know it."""
        with self._writing():
            self._connection.execute(
                "UPDATE person SET forget_at_ms = ? WHERE ref = ? AND wrapped IS NOT NULL", [at_ms, bytes.fromhex(ref)]
            )
        self.end_due()

    def remember(self, person: Person) -> None:
        """Lets a person's key stay.

        Raises:
            BadArgument: it has ended, or was not about to.
        """
        self.end_due()
        state = self.state_of(person)
        if state is None or state.forget_at_ms is None:
            raise BadArgument(f"This {person.kind} is not about to be forgotten.")
        with self._writing():
            changed = self._connection.execute(
                "UPDATE person SET forget_at_ms = NULL WHERE ref = ? AND wrapped IS NOT NULL", [self._ref(person)]
            ).rowcount
        if not changed:
            raise BadArgument(
                f"This {person.kind} is forgotten: the key was destroyed, and cannot be made again.",
                hint="A backup of the store that is older, put back, ends it again.",
            )

    def end_due(self) -> int:
        """Destroys the keys whose time has passed; returns how many.

        All that were due count as forgotten by one transaction, under one number, greater than all before. The lake has
        the ends first, and all that it has are ends here: also of a store that was put back from a backup.
        """
        now_ms = self._now_ms()
        with self._lock:
            is_due = self._connection.execute(f"SELECT 1 FROM person WHERE {_DUE} LIMIT 1", [now_ms]).fetchone()
            if not is_due and self._connection.execute("PRAGMA user_version").fetchone()[0] == self._ends.mark():
                return 0
        with self._writing():
            there = {end.ref: end for end in self._ends.read()}
            rows = self._connection.execute(
                "SELECT ref, kind, forgotten_no FROM person WHERE forgotten_no > 0"
            ).fetchall()
            here = {ref.hex(): End(ref.hex(), kind, number) for ref, kind, number in rows}
            lacking = [end for ref, end in there.items() if ref not in here or here[ref].number < end.number]
            again = [(bytes.fromhex(e.ref), e.kind, secrets.token_bytes(_ID_BYTES), now_ms, e.number) for e in lacking]
            self._connection.executemany(_END_AGAIN, again)
            number = 1 + max((end.number for end in (*here.values(), *there.values())), default=0)
            due = self._connection.execute(f"SELECT ref, kind FROM person WHERE {_DUE}", [now_ms]).fetchall()
            new = [end for ref, end in here.items() if ref not in there]
            self._ends.add([*new, *(End(ref.hex(), kind, number) for ref, kind in due)])
            ended = self._connection.execute(_END, [number, now_ms]).rowcount
            self._connection.execute(f"PRAGMA user_version = {self._ends.mark()}")
            return ended

    def counts(self) -> Mapping[str, Counts]:
        """Counts persons by kind."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT kind, count(wrapped), count(CASE WHEN wrapped IS NOT NULL THEN forget_at_ms END), "
                "count(forgotten_no) FROM person GROUP BY kind ORDER BY kind"
            ).fetchall()
        return {kind: Counts(*numbers) for kind, *numbers in rows}

    def sealed_columns(self, topic: str) -> set[str]:
        """Returns the columns of a topic whose values were never in the clear."""
        with self._lock:
            return {
                name for (name,) in self._connection.execute("SELECT column_name FROM sealed WHERE topic = ?", [topic])
            }

    def fields(self, topic: str) -> dict[str, bool]:
        """Returns the paths of a topic's fields that were declared once, each with whether it was in the clear then."""
        with self._lock:
            return dict(self._connection.execute("SELECT path, is_plain FROM field WHERE topic = ?", [topic]))

    def keep_sealed(self, topic: str, columns: Iterable[str], fields: Mapping[str, bool]) -> None:
        """Records the columns of a topic that are encrypted from now on, and its `fields`; others are not any more."""
        with self._writing(keeps_cache=True):
            for name in ("sealed", "field"):
                self._connection.execute(f"DELETE FROM {name} WHERE topic = ?", [topic])
            self._connection.executemany("INSERT INTO sealed VALUES (?, ?)", [(topic, column) for column in columns])
            self._connection.executemany("INSERT INTO field VALUES (?, ?, ?)", [(topic, *f) for f in fields.items()])

    def note_access(self, who: str, purpose: str, persons: int, *, together_ms: int = 0) -> None:
        """Adds a line to the ledger of those who read what was encrypted.

        Args:
            together_ms: the persons are added to a line of the same reader and purpose that is not older.
        """
        now_ms = self._now_ms()
        add = "UPDATE access SET persons = persons + ? WHERE who = ? AND purpose = ? AND at_ms > ?"
        with self._writing(keeps_cache=True):
            known = [persons, who, purpose, now_ms - together_ms]
            if not together_ms or not self._connection.execute(add, known).rowcount:
                self._connection.execute("INSERT INTO access VALUES (?, ?, ?, ?)", [now_ms, who, purpose, persons])

    def accesses(self, limit: int) -> list[tuple[int, str, str, int]]:
        """Returns the newest lines of that ledger: epoch milliseconds, who, purpose, number of persons."""
        with self._lock:
            return self._connection.execute("SELECT * FROM access ORDER BY rowid DESC LIMIT ?", [limit]).fetchall()

    def rotate(self) -> int:
        """Replaces the key of keys and destroys the old one, so that older backups are of no use; returns its number.

        Killed at any moment, its file has the one of the store, maybe both: the old one is destroyed once it has ended.

        Raises:
            BadArgument: another process is doing so.
            BadSetting: the key of keys is not in a file.
        """
        with exclusive(Path(f"{self._file}.rotation")) as is_ours:
            if not is_ours:
                raise BadArgument("Another process replaces the key of keys now.")
            self._refresh()
            new = KeyOfKeys(secrets.token_bytes(BYTES))
            write_keys_of_keys(self._settings, [self._key_of_keys.key, new.key])
            with self._writing():
                rows = self._connection.execute("SELECT ref, wrapped FROM person WHERE wrapped IS NOT NULL").fetchall()
                again = [(new.wrap(self._secret(wrapped)), ref) for ref, wrapped in rows]
                self._connection.executemany("UPDATE person SET wrapped = ? WHERE ref = ?", again)
                self._connection.execute("UPDATE key_of_keys SET no = no + 1, index_key = ?", [new.wrap(self._index)])
            self._key_of_keys = new
            write_keys_of_keys(self._settings, [new.key])
            return int(self._connection.execute("SELECT no FROM key_of_keys").fetchone()[0])

    def backup(self, file: Path) -> None:
        """Copies the store to a new file, which needs the same key of keys.

        Raises:
            BadArgument: the file is there already, or cannot be made.
        """
        try:
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            raise BadArgument(f"{file}: {error.strerror}.", hint="Expected the name of a new file.") from None
        with self._lock, closing(open_sqlite(file)) as copy:
            self._connection.backup(copy)
        settle([file])

    @contextmanager
    def _writing(self, *, keeps_cache: bool = False) -> Iterator[None]:
        """Runs the block in a transaction, all of it or nothing."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._refresh()
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise
            finally:
                if not keeps_cache:
                    self._drop()

    def _refresh(self) -> None:
        """Drops what is kept in memory if another process changed the store."""
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._drop()
            self._find_key_of_keys()
            self._version = version

    def _drop(self) -> None:
        self._by_person.clear()
        self._by_id.clear()

    def _find_key_of_keys(self) -> None:
        """Reads the key of keys again if it is not the one of the store."""
        wrapped = self._connection.execute("SELECT index_key FROM key_of_keys").fetchone()[0]
        if self._version >= 0 and self._key_of_keys.unwrap(wrapped) is not None:
            return
        for key_of_keys in read_keys_of_keys(self._settings):
            if (index := key_of_keys.unwrap(wrapped)) is not None:
                self._key_of_keys, self._index = key_of_keys, index
                return
        raise BadSetting(
            f"{self._settings.key_of_keys_file}: this is not the key of keys of {self._file}.",
            hint="Restore the key of keys that the store was made with, or was rotated to last.",
        )

    def _ref(self, person: Person) -> bytes:
        return hmac.digest(self._index, f"{person.kind}\0{person.id}".encode(), hashlib.sha256)

    def _load(self, persons: Iterable[Person], until_ms: int | None) -> None:
        if len(self._by_person) > _MOST_KEPT:
            self._by_person.clear()
        select = "SELECT key_id, wrapped, forget_at_ms FROM person WHERE ref = ?"
        rows = {person: self._connection.execute(select, [self._ref(person)]).fetchone() for person in persons}
        new = [person for person, row in rows.items() if row is None]
        if new:
            with self._writing(keeps_cache=True):
                self._connection.executemany(
                    "INSERT INTO person VALUES (?, ?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING",
                    [(self._ref(person), person.kind, *self._random_key(), until_ms) for person in new],
                )
                rows |= {p: self._connection.execute(select, [self._ref(p)]).fetchone() for p in new}
        for person, (key_id, wrapped, forget_at_ms) in rows.items():
            self._by_person[person] = (self._unwrapped(key_id, wrapped), forget_at_ms)

    def _random_key(self) -> tuple[bytes, bytes]:
        return secrets.token_bytes(_ID_BYTES), self._key_of_keys.wrap(secrets.token_bytes(_SECRET_BYTES))

    def _unwrapped(self, key_id: bytes, wrapped: bytes | None) -> Key | None:
        return None if wrapped is None else Key(key_id, self._secret(wrapped))

    def _secret(self, wrapped: bytes) -> bytes:
        """Decrypts a key. One that cannot be read is an error: without a key a person counts as forgotten."""
        secret = self._key_of_keys.unwrap(wrapped)
        if secret is None:  # another process has replaced the key of keys just now
            self._find_key_of_keys()
            secret = self._key_of_keys.unwrap(wrapped)
        if secret is None:
            raise BadSetting(f"{self._file} is damaged: a key in it cannot be decrypted.", hint="Restore a backup.")
        return secret

    def _valid(self, found: tuple[Key | None, int | None]) -> Key | None:
        key, forget_at_ms = found
        return None if forget_at_ms is not None and forget_at_ms <= self._now_ms() else key
