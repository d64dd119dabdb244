"""Decrypts values of persons, and writes down who read how many."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable

import pyarrow as pa

from twofold.features.persons.keys.ciphertext import Key, unseal
from twofold.features.persons.keys.key_store import KeyStore


class Reader:
    """Decrypts for one user; a value whose key has ended, or that was never encrypted, is null.

    Args:
        together_ms: as in `KeyStore.note_access`, for what reads without an end.
        of_persons: a value by the key of a day is null, too, since no copy loses it as that ends.
    """

    def __init__(self, store: KeyStore, purpose: str, *, together_ms: int = 0, of_persons: bool = False) -> None:
        self._of_persons = of_persons
        self._store, self._purpose, self._together_ms = store, purpose, together_ms
        self.last_end, self.close = store.last_end, store.close
        self._use = -1
        self._seen: set[bytes] = set()

    def reveal(self, column: pa.ChunkedArray, use: int, ended_after: int | None = None) -> pa.Array:
        """Decrypts a column: texts as they are, other values as JSON.

        Before any value is returned, the ledger of accesses has how many persons it is of, but for those of whom it has
        a line of the same use.

        Args:
            use: the number of the query, for example.
            ended_after: as in `values`.
        """
        found, persons = self.values(column.to_pylist(), ended_after)
        if use != self._use:
            self._use, self._seen = use, set()
        if new := persons - self._seen:
            self.note_access(len(new))
            self._seen |= new
        return pa.array(found, pa.string())

    def note_access(self, persons: int) -> None:
        """Adds to the ledger of accesses that this user is about to read what is held of so many persons."""
        who = pwd.getpwuid(os.getuid()).pw_name
        self._store.note_access(who, self._purpose, persons, together_ms=self._together_ms)

    def values(
        self, texts: Iterable[str | None], ended_after: int | None = None
    ) -> tuple[list[str | None], set[bytes]]:
        """Decrypts values; returns the ids of the keys, too.

        Args:
            ended_after: a value whose key ended after the end of this number stays as it is, instead of null.
        """
        used: set[bytes] = set()
        return [None if text is None else self._value(text, used, ended_after) for text in texts], used

    def _value(self, text: str, used: set[bytes], ended_after: int | None) -> str | None:
        missing: list[bytes] = []

        def find(key_id: bytes) -> Key | None:
            key = self._store.find(key_id, of_persons=self._of_persons)
            if key is None:
                missing.append(key_id)
            else:
                used.add(key_id)
            return key

        content = unseal(text, find)
        if ended_after is not None and any(self._store.ended_after(key_id, ended_after) for key_id in missing):
            return text
        return _text(content)


def _text(content: bytes | None) -> str | None:
    import msgspec

    if content is None:
        return None
    return msgspec.json.decode(content, type=str) if content[:1] == b'"' else content.decode()
