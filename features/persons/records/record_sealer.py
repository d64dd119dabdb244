"""Encrypts what is personal in a record before it is produced."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from twofold.features.capture.captured_table import MARK_PREFIX, UNCHANGED
from twofold.features.capture.debezium_decoder import placeholder_finder
from twofold.features.persons.keys.ciphertext import RECORD, START, Key, is_sealed, seal
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.records.personal import (
    Owner,
    Token,
    computed_columns,
    owners_of,
    path_of,
    personal_columns,
)
from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.json.json_fields import is_deep, repeated_key
from twofold.infra.errors import TwofoldError
from twofold.tables.declare.records.cover import Seal
from twofold.tables.declare.topic import Topic
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings

TOKEN = "_token"
"""The kind of the keys of tokens, one a domain, which do not end."""
DAY = "_day"
"""The kind of the keys of what cannot be encrypted by a person's: one a topic and day."""
KEPT = timedelta(days=30)
"""How long such a key is kept."""
WHOLE = f"starts_with(hex(value), {DUCKDB.literal(START.encode().hex().upper())})"
"""Whether a quarantined record is encrypted as a whole, in DuckDB's SQL."""
_ROWS = ("before", "after")
_CHANGE = {*_ROWS, "op", "source", "message", "transaction", "ts_ms", "ts_us", "ts_ns"}
"""What a change has: rows, and nothing else of their values."""
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_CANONICAL = msgspec.json.Encoder(decimal_format="number", order="sorted")

CoverValue = Callable[[bytes, Collection[Owner]], bytes | None]
"""Covers a JSON value of these owners; None: it is left out."""


class _Message(msgspec.Struct):
    prefix: str


class _Uncovered(Exception):
    """A record that has personal values, and cannot be encrypted by keys of persons."""


class PersonalRecord:
    """The records of a topic with columns of persons: where personal values are, and whose.

    A change of a captured table has two rows, the one before it and the one after it; any other record is one.
    """

    def __init__(self, topic: Topic) -> None:
        self.owners = owners_of(topic)
        columns, self._computed = personal_columns(topic), computed_columns(topic)
        self._paths = {path_of(topic, column): given.owners for column, given in columns.items()}
        self._sources = {name: (path_of(topic, c.column), columns[c.column]) for name, c in self._computed.items()}
        self._ids = {owner: path_of(topic, owner.column) for owner in self.owners}
        self._drops, self._holds_rows = topic.unknown_fields == "ignore", topic.has_marks
        fields = topic.record_format.types.items()
        row = ((name, kind) for name, kind in fields if not self._holds_rows or not name.startswith("cdc_"))
        self._type = FieldType(name="struct", fields=tuple(row))
        # What did not travel is known by its placeholder, which is nothing of a person.
        self._is_absent = placeholder_finder(topic.record_format) if self._holds_rows else _never

    def with_rows(self, value: bytes, convert: Callable[[bytes], bytes]) -> bytes:
        """Converts each row in a record; what else a change has stays.

        Raises:
            Exception: it is no such record, or nested too deeply.
        """
        if is_deep(value):
            raise _Uncovered
        if not self._holds_rows:
            return convert(value)
        members = {name: bytes(cell) for name, cell in _MEMBERS.decode(value).items()}
        mark = msgspec.json.decode(members.get("message", b"null"), type=_Message | None)
        if members.keys() - _CHANGE or (mark is not None and mark.prefix != MARK_PREFIX):
            raise _Uncovered
        rows = {name: convert(members[name]) for name in _ROWS if members.get(name, b"null") != b"null"}
        return _joined((members | rows).items())

    def parsed(self, row: bytes) -> dict[str, Any]:
        """Parses a row.

        Raises:
            Exception: it is no JSON object, or has a name twice.
        """
        document = msgspec.json.decode(row)
        if not isinstance(document, dict) or repeated_key(row) is not None:
            raise _Uncovered
        return document

    def persons(self, document: Mapping[str, Any]) -> dict[Owner, Person]:
        """Returns the persons whom a row names."""
        ids = {owner: _id(_at(document, path)) for owner, path in self._ids.items()}
        return {
            owner: Person(owner.kind, id)
            for owner, id in ids.items()
            if id is not None and not (self._holds_rows and id == UNCHANGED)
        }

    def computed(
        self, document: Mapping[str, Any], forgotten: Collection[Owner], token: Callable[[str], str]
    ) -> dict[str, bytes]:
        """Computes, from a row in the clear, the columns that are computed of those of persons, as JSON.

        Args:
            token: makes the token of a text.
        """
        found = {}
        for name, (path, given) in self._sources.items():
            value = _at(document, path)
            is_over = forgotten and not set(forgotten).isdisjoint(given.owners)
            column = self._computed[name]
            text = None if is_over else column.compute(value)
            if text is not None and isinstance(column, Token):
                text = token(text)
            found[name] = msgspec.json.encode(UNCHANGED if self._holds_rows and value == UNCHANGED else text)
        return found

    def covered(self, row: bytes, cover: CoverValue, computed: Mapping[str, bytes] | None = None) -> bytes:
        """Covers each declared personal value, and each value that the schema does not declare; other bytes stay.

        Args:
            computed: columns that are added, or replaced.
        """
        added = computed or {}
        members = [one for one in self._members(row, self._type, (), cover) if one[0] not in added]
        return _joined([*members, *added.items()])

    def is_sealed(self, value: bytes) -> bool:
        """Whether a record has no personal value in the clear, or is encrypted as a whole."""
        try:
            if not is_sealed(value):
                self.with_rows(value, self._require_sealed)
        except Exception:
            return False
        return True

    def _require_sealed(self, row: bytes) -> bytes:
        self.parsed(row)
        return self.covered(row, _require_sealed)

    def _members(
        self, text: bytes | msgspec.Raw, kind: FieldType, path: tuple[str, ...], cover: CoverValue
    ) -> Iterator[tuple[str, bytes | None]]:
        types = dict(kind.fields)
        for name, raw in _MEMBERS.decode(text).items():
            place, cell = (*path, name), bytes(raw)
            if self._is_absent(cell):
                yield name, cell
            elif place in self._paths:
                yield name, cover(cell, self._paths[place]) or b"null"
            elif name in types:
                yield name, self._declared(cell, types[name], place, cover)
            elif not self._drops:
                yield name, cover(cell, self.owners)

    def _declared(self, text: bytes, kind: FieldType, place: tuple[str, ...], cover: CoverValue) -> bytes:
        """Keeps a value as far as its type declares it; an object in place of another value stays one, for ingest."""
        inner = kind.element
        if kind.name == "json" or text[:1] not in (b"{", b"["):
            return text
        if text[:1] == b"[":
            cells = map(bytes, _ELEMENTS.decode(text))
            of_kind = inner if kind.name == "array" else None
            elements = (self._declared(c, of_kind, (), cover) if of_kind else cover(c, self.owners) for c in cells)
            return b"[%b]" % b",".join(element or b"null" for element in elements)
        if inner is None or kind.name != "map":
            return _joined(self._members(text, kind, place, cover))
        members = _MEMBERS.decode(text).items()
        return _joined([(name, self._declared(bytes(cell), inner, (), cover)) for name, cell in members])


class RecordSealer:
    """Encrypts what is personal in the records of one topic."""

    def __init__(self, topic: Topic, store: KeyStore) -> None:
        self._topic, self._store, self._record = topic, store, PersonalRecord(topic)

    def seal(self, value: bytes | None) -> bytes | None:
        """Encrypts values by the keys of their owners; those of a forgotten person become null.

        A value that is no JSON object, has a name twice, does not say whose it is, or cannot be taken apart for any
        other reason, is encrypted as a whole by the topic's key of the day, which is destroyed after 30 days; of a
        captured row, which tables must not lack, only the values that are of no known person are. A tombstone stays
        one.

        Raises:
            TwofoldError, sqlite3.Error, OSError: of the store of keys; of the value nothing is raised.
        """
        if value is None:
            return None
        try:
            return self._record.with_rows(value, self._sealed_row)
        except (TwofoldError, sqlite3.Error, OSError):
            raise
        except Exception:  # a value that ended the process would come again
            return self.seal_whole(value)

    def seal_whole(self, value: bytes) -> bytes:
        """Encrypts a record as a whole by the topic's key of the day."""
        return seal(value, [day_key(self._store, self._topic)], RECORD).encode()

    def _sealed_row(self, row: bytes) -> bytes:
        document = self._record.parsed(row)
        persons = self._record.persons(document)
        found = self._store.keys_of(persons.values())
        keys = {owner: found[person] for owner, person in persons.items()}
        forgotten = [owner for owner, key in keys.items() if key is None]
        computed = self._record.computed(document, forgotten, self._token)
        return self._record.covered(row, partial(self._cover, keys), computed)

    def _token(self, text: str) -> str:
        return key_of(self._store, Person(TOKEN, self._topic.domain)).token(text)

    def _cover(self, keys: Mapping[Owner, Key | None], text: bytes, owners: Collection[Owner]) -> bytes | None:
        if text == b"null":
            return text
        chosen = {key.id: key for owner in owners if (key := keys.get(owner)) is not None}
        if any(owner not in keys for owner in owners):
            if not self._topic.has_marks:
                raise _Uncovered
            chosen = {b"": day_key(self._store, self._topic)}
        elif any(keys[owner] is None for owner in owners):
            return None
        return b'"%b"' % seal(_canonical(text), list(chosen.values())).encode()


def day_key(store: KeyStore, topic: Topic) -> Key:
    """Returns the key of today for what cannot be encrypted by a person's."""
    now = datetime.now(UTC)
    person = Person(DAY, f"{topic.full_name} {now.date()}")
    return key_of(store, person, until_ms=int((now + KEPT).timestamp() * 1_000))


def key_of(store: KeyStore, person: Person, until_ms: int | None = None) -> Key:
    """Returns a key that no person has, and that has not ended."""
    key = store.keys_of([person], until_ms=until_ms)[person]
    if key is None:
        raise RuntimeError(f"the key {person} has ended")
    return key


@contextmanager
def sealing(settings: Settings, topics: Iterable[Topic]) -> Iterator[Seal]:
    """Yields what encrypts a record: full name of its topic, value -> value; of other topics the value as it is.

    Raises:
        BadSetting: a topic has columns of persons, and the store or the key of keys is missing.
    """
    chosen = [topic for topic in topics if personal_columns(topic)]
    if not chosen:
        yield lambda _, value: value
        return
    with closing(KeyStore(settings)) as store:
        sealers = {topic.full_name: RecordSealer(topic, store) for topic in chosen}
        yield lambda topic, value: sealers[topic].seal(value) if topic in sealers else value


def _require_sealed(text: bytes, _: Collection[Owner]) -> bytes:
    if text != b"null" and not is_sealed(text[1:-1]):
        raise _Uncovered
    return text


def _canonical(text: bytes) -> bytes:
    """Writes equal JSON values by equal bytes: members by name, numbers as exact as they are."""
    if text[:1] == b'"':
        return msgspec.json.encode(msgspec.json.decode(text))
    return _CANONICAL.encode(json.loads(text, parse_float=Decimal))


def _joined(members: Iterable[tuple[str, bytes | None]]) -> bytes:
    return b"{%b}" % b",".join(b"%b:%b" % (msgspec.json.encode(n), cell) for n, cell in members if cell is not None)


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _id(value: Any) -> str | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number or isinstance(value, str) else None


def _never(_: bytes) -> bool:
    return False
