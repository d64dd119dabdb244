"""The cover of what is of persons: what the platform calls of all this, by the name in `feature.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.features.persons.keys.ciphertext import RECORD, Key, seal
from twofold.features.persons.keys.ended_keys import EndedKeys
from twofold.features.persons.keys.key_store import KeyStore
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.keys.reader import Reader
from twofold.features.persons.records.record_sealer import WHOLE, PersonalRecord, day_key, sealing
from twofold.features.persons.records.sealed_topics import require_sealed
from twofold.infra.rows.rows import are_here
from twofold.tables.declare.records.cover import Cover
from twofold.tables.declare.topic import Topic

if TYPE_CHECKING:
    from kafka import KafkaProducer

    from twofold.infra.delta.lake import Lake
    from twofold.infra.project.settings import Settings
    from twofold.infra.rows.rows import Rows


class PersonCover(Cover):
    """Encrypts what is of persons in the records of a topic."""

    whole = WHOLE
    prepare = staticmethod(make_keys)
    require = staticmethod(require_sealed)
    sealing = staticmethod(sealing)

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def quarantined(self, rows: Rows, settings: Settings) -> Rows:
        topic = self._topic
        with closing(KeyStore(settings)) as store:
            key = day_key(store, topic)
        if are_here(rows):
            return _covered(rows, topic, key)

        def covered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from _covered(pa.Table.from_batches([batch]), topic, key).to_batches()

        return rows.mapInArrow(covered, rows.schema)

    def send_again(self, lake: Lake, producer: KafkaProducer) -> object:
        from twofold.features.persons.records.sealed_records import send_sealed_again

        return send_sealed_again(lake, self._topic, producer)

    @staticmethod
    def reader(settings: Settings, purpose: str, *, of_copy: bool = False) -> Reader:
        # The accesses of an hour are one line of their ledger: an output has a step a second.
        return Reader(KeyStore(settings), purpose, together_ms=3_600_000 if of_copy else 0, of_persons=of_copy)

    @staticmethod
    def last_end(settings: Settings) -> int:
        return EndedKeys(settings).last()

    def end_due(self, settings: Settings) -> bool:
        KeyStore(settings).close()  # it destroys them when it is opened
        return False


def _covered(rows: pa.Table, topic: Topic, key: Key) -> pa.Table:
    record, values = PersonalRecord(topic), rows["value"].to_pylist()
    sealed = [v if v is None or record.is_sealed(v) else seal(v, [key], RECORD).encode() for v in values]
    return rows.set_column(rows.column_names.index("value"), rows.schema.field("value"), pa.array(sealed, pa.binary()))
