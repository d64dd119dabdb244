"""Encrypts what is personal in a record before it is produced, and what quarantine keeps of such a topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from infra.encodings.column_types import FieldType
from infra.encodings.json.json_fields import repeated_key
from infra.keys.ciphertext import RECORD, Key, is_sealed, seal
from infra.keys.key_store import KeyStore, Person
from infra.rows.rows import are_here
from tables.declare.personal import Owner, owners_of, path_of, personal_columns
from tables.declare.topic import Topic

if TYPE_CHECKING:
    from infra.rows.rows import Rows
    from infra.settings import Settings

DAY = "_day"
"""The kind of the keys of what cannot be encrypted by a person's: one a topic and day."""
KEPT = timedelta(days=30)
"""How long such a key is kept."""
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_CANONICAL = msgspec.json.Encoder(decimal_format="number", order="sorted")

Seal = Callable[[str, bytes | None], bytes | None]
Cover = Callable[[bytes, Collection[Owner]], bytes | None]
"""Covers a JSON value of these owners; None: it is left out."""


class _Uncovered(Exception):
    """A record that has personal values, and cannot be encrypted by keys of persons."""


class PersonalRecord:
    """The records of a topic with columns of persons: where personal values are, and whose."""

    def __init__(self, topic: Topic) -> None:
        self.owners = owners_of(topic)
        self._paths = {path_of(topic, column): given.owners for column, given in personal_columns(topic).items()}
        self._ids = {owner: path_of(topic, owner.column) for owner in self.owners}
        self._type, self._drops = topic.record_format.record_type, topic.unknown_fields == "ignore"

    def persons(self, value: bytes) -> dict[Owner, Person]:
        """Returns the persons whom a record names.

        Raises:
            _Uncovered: it is no JSON object, or has a name twice.
        """
        try:
            document = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _Uncovered from error
        if not isinstance(document, dict) or repeated_key(value) is not None:
            raise _Uncovered
        ids = {owner: _id(document, path) for owner, path in self._ids.items()}
        return {owner: Person(owner.kind, id) for owner, id in ids.items() if id is not None}

    def covered(self, value: bytes, cover: Cover) -> bytes:
        """Covers each declared personal value, and each value that the schema does not declare; other bytes stay."""
        return self._object(value, self._type, (), cover)

    def is_sealed(self, value: bytes) -> bool:
        """Whether a record has no personal value in the clear, or is encrypted as a whole."""
        try:
            if not is_sealed(value):
                self.persons(value)
                self.covered(value, _require_sealed)
        except _Uncovered:
            return False
        return True

    def _object(self, text: bytes | msgspec.Raw, kind: FieldType, path: tuple[str, ...], cover: Cover) -> bytes:
        types, members = dict(kind.fields), list[tuple[str, bytes | None]]()
        for name, cell in _MEMBERS.decode(text).items():
            place = (*path, name)
            if place in self._paths:
                members.append((name, cover(bytes(cell), self._paths[place]) or b"null"))
            elif name in types:
                members.append((name, self._declared(bytes(cell), types[name], place, cover)))
            elif not self._drops:
                members.append((name, cover(bytes(cell), self.owners)))
        return _joined(members)

    def _declared(self, text: bytes, kind: FieldType, place: tuple[str, ...], cover: Cover) -> bytes:
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
            return self._object(text, kind, place, cover)
        members = _MEMBERS.decode(text).items()
        return _joined([(name, self._declared(bytes(cell), inner, (), cover)) for name, cell in members])


class RecordSealer:
    """Encrypts what is personal in the records of one topic."""

    def __init__(self, topic: Topic, store: KeyStore) -> None:
        self._topic, self._store, self._record = topic, store, PersonalRecord(topic)

    def seal(self, value: bytes | None) -> bytes | None:
        """Encrypts values by the keys of their owners; those of a forgotten person become null.

        A value that is no JSON object, has a name twice, or does not say whose it is, is encrypted as a whole by the
        topic's key of the day, which is destroyed after 30 days. A tombstone stays one.
        """
        if value is None:
            return None
        try:
            persons = self._record.persons(value)
            keys = self._store.keys_of(persons.values())
            return self._record.covered(value, partial(_sealed, {o: keys[person] for o, person in persons.items()}))
        except (_Uncovered, ValueError):  # a number too long for Python
            return seal(value, [day_key(self._store, self._topic)], RECORD).encode()


def day_key(store: KeyStore, topic: Topic) -> Key:
    """Returns the key of today for what cannot be encrypted by a person's."""
    now = datetime.now(UTC)
    person = Person(DAY, f"{topic.full_name} {now.date()}")
    key = store.keys_of([person], until_ms=int((now + KEPT).timestamp() * 1_000))[person]
    if key is None:
        raise RuntimeError("the key of today has ended")
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


def seal_quarantined(rows: Rows, topic: Topic, settings: Settings) -> Rows:
    """Encrypts, by the key of the day, quarantined records that have something personal in the clear.

    Args:
        rows: a column `value`, among others.
    """
    if not personal_columns(topic):
        return rows
    with closing(KeyStore(settings)) as store:
        key = day_key(store, topic)
    if are_here(rows):
        return _covered(rows, topic, key)

    def covered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _covered(pa.Table.from_batches([batch]), topic, key).to_batches()

    return rows.mapInArrow(covered, rows.schema)


def _covered(rows: pa.Table, topic: Topic, key: Key) -> pa.Table:
    record, values = PersonalRecord(topic), rows["value"].to_pylist()
    sealed = [v if v is None or record.is_sealed(v) else seal(v, [key], RECORD).encode() for v in values]
    return rows.set_column(rows.column_names.index("value"), rows.schema.field("value"), pa.array(sealed, pa.binary()))


def _sealed(keys: Mapping[Owner, Key | None], text: bytes, owners: Collection[Owner]) -> bytes | None:
    if text == b"null":
        return text
    if any(owner not in keys for owner in owners):
        raise _Uncovered
    chosen = {key.id: key for owner in owners if (key := keys[owner]) is not None}
    if any(keys[owner] is None for owner in owners):
        return None
    return b'"%b"' % seal(_canonical(text), list(chosen.values())).encode()


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


def _id(document: Any, path: tuple[str, ...]) -> str | None:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    is_number = isinstance(document, int) and not isinstance(document, bool)
    return str(document) if is_number or isinstance(document, str) else None
