"""Finds the rows that hold values of a person."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from twofold.features.persons.keys.ciphertext import PATTERN, START, Key, name_of, unseal
from twofold.features.persons.keys.key_store import KeyStore
from twofold.infra.duckdb_session import query
from twofold_algebra.sql.names import DUCKDB

_NESTED = r"enc:1:[A-Za-z0-9_-]{22}:[A-Za-z0-9_-]{128,}"
"""A text that can hold another one."""
_TEXTS, _NAMED = "_encrypted_texts", "_is_named"


class PersonRows(NamedTuple):
    """Rows that hold values of a person.

    Attributes:
        found: the rows.
        readable: how many have one that can be decrypted now.
    """

    found: pa.Table
    readable: int


def rows_of_key(
    rows: object, store: KeyStore, key_id: bytes | None, columns: Sequence[str] = (), named: str = "false"
) -> PersonRows:
    """Returns the rows with values that a key has encrypted, alone or with those of other persons.

    A value of several persons is found as long as the keys that come before this one in it are there.

    Args:
        rows: a table or a reader, as `query` takes them.
        key_id: None: the person has no key.
        columns: looked at, at any depth; none: all.
        named: rows for which this SQL of DuckDB is true are returned, too.
    """
    looked_at = f"{{{', '.join(f'{DUCKDB.literal(c)}: {DUCKDB.name(c)}' for c in columns)}}}" if columns else "rows"
    text = f"CAST({looked_at} AS VARCHAR)"
    texts = f"regexp_extract_all({text}, {DUCKDB.literal(PATTERN)})"
    held = "false"
    if key_id is not None:
        own = DUCKDB.literal(f"{START}{name_of(key_id)}:")
        held = f"contains({text}, {own}) OR regexp_matches({text}, {DUCKDB.literal(_NESTED)})"
    added = f"{texts} AS {_TEXTS}, coalesce({named}, false) AS {_NAMED}"
    chosen = query(f"SELECT *, {added} FROM rows WHERE {held} OR {_NAMED}", rows=rows)
    states = [_state(texts, store, key_id) for texts in chosen[_TEXTS].to_pylist()]
    is_found = [n or state is not None for n, state in zip(chosen[_NAMED].to_pylist(), states, strict=True)]
    rows_found = chosen.drop_columns([_TEXTS, _NAMED]).filter(pa.array(is_found, pa.bool_()))
    return PersonRows(rows_found, sum(state is True for state in states))


def _state(texts: Sequence[str], store: KeyStore, key_id: bytes | None) -> bool | None:
    """Returns whether one of the texts that a key encrypted can be read; None if it encrypted none."""
    state: bool | None = None
    for text in texts:
        find, used = recording(store.find)
        is_read = unseal(text, find) is not None
        if key_id in used:
            state = state or is_read
    return state


def recording(find: Callable[[bytes], Key | None]) -> tuple[Callable[[bytes], Key | None], set[bytes]]:
    """Returns what finds keys as `find`, and the ids that it was asked for."""
    used: set[bytes] = set()

    def recorded(key_id: bytes) -> Key | None:
        used.add(key_id)
        return find(key_id)

    return recorded, used
