"""Collects all that is held of a person, decrypted, for Articles 15 and 20 of the GDPR."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twofold.features.persons.keys.ciphertext import START, unseal
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.person_rows import recording, rows_of_key
from twofold.features.persons.records.personal import owners_of
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument, nearest
from twofold.tables.declare.registry import Registry
from twofold_algebra.sql.names import DUCKDB

Rows = list[dict[str, Any]]


def require_person(registry: Registry, kind: str, id: str) -> Person:
    """Returns a person of a kind that topics declare.

    Raises:
        BadArgument: no topic does.
    """
    kinds = sorted({owner.kind for topic in registry.topics.values() for owner in owners_of(topic)})
    if kind not in kinds:
        known = f"The kinds are {', '.join(kinds)}." if kinds else "A topic declares them: personal(...)."
        raise BadArgument(f"No topic has columns of a {kind!r}.", hint=nearest(kind, kinds, known))
    if not id:
        raise BadArgument("The id is empty.", hint=f"Give the id of the {kind} as records have it.")
    return Person(kind, id)


def export(lake: Lake, registry: Registry, store: KeyStore, person: Person) -> Mapping[str, Rows]:
    """Returns the rows of events and tables that name the person or hold values encrypted by the person's key.

    Values of the person are decrypted, also those of two persons; values of others stay encrypted. Rows are those of
    the newest version of each table; quarantine, whose bytes name no person, is left out. Once one of two persons is
    forgotten, only the id says whom else their value is of: a table without it gives no such row.
    """
    state = store.state_of(person)
    key_id = state and state.key_id
    found: dict[str, Rows] = {}
    for name in (*registry.topics, *registry.tables):
        if not lake.exists(name):
            continue
        owners = owners_of(registry.topics[name]) if name in registry.topics else ()
        columns = dict.fromkeys(owner.column for owner in owners if owner.kind == person.kind)
        named = [f"CAST({DUCKDB.name(column)} AS VARCHAR) = {DUCKDB.literal(person.id)}" for column in columns]
        scanned = lake.open(name).scan()
        rows = rows_of_key(scanned, store, key_id, named=" OR ".join(named) or "false").found.to_pylist()
        if rows:
            found[name] = [_opened(row, store, key_id) for row in rows]
    return found


def _opened(value: Any, store: KeyStore, key_id: bytes | None) -> Any:
    """Decrypts what is of a person in a value, at any depth."""
    if isinstance(value, dict):
        return {name: _opened(cell, store, key_id) for name, cell in value.items()}
    if isinstance(value, list):
        return [_opened(cell, store, key_id) for cell in value]
    if not isinstance(value, str) or START not in value:
        return value
    find, used = recording(store.find)
    content = unseal(value, find)
    if content is not None:
        return json.loads(content) if key_id in used else value
    try:
        return json.dumps(_opened(json.loads(value), store, key_id), ensure_ascii=False)
    except ValueError:
        return value
