"""Sends quarantined records again that were encrypted as a whole, encrypted by the keys of their persons."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.features.persons.keys.ciphertext import RECORD, unseal
from twofold.features.persons.keys.key_store import KeyStore
from twofold.features.persons.records.personal import personal_columns
from twofold.features.persons.records.record_sealer import WHOLE, RecordSealer
from twofold.infra import COMMAND
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.duckdb_session import query
from twofold.infra.errors import BadArgument
from twofold.tables.declare.metadata_columns import APPENDED_AT, OFFSET, PARTITION
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import Decoder, raw_columns
from twofold_algebra.sql.names import DUCKDB
from twofold_archive.format.record_columns import HEADERS

if TYPE_CHECKING:
    from kafka import KafkaProducer


@dataclass(frozen=True, kw_only=True)
class SentAgain:
    """The quarantined records that were encrypted as a whole, by what became of them.

    Attributes:
        sent: now in the log once more, for ingest.
        there: their events are there already, or are sent with another one.
        refused: ingest would refuse them again.
        ended: the key of their day is destroyed.
    """

    sent: int
    there: int
    refused: int
    ended: int

    def __str__(self) -> str:
        return (
            f"{self.sent:,} records sent again; {self.there:,} are events already, {self.refused:,} would be refused "
            f"again, the keys of {self.ended:,} are destroyed."
        )


def send_sealed_again(lake: Lake, topic: Topic, producer: KafkaProducer) -> SentAgain:
    """Decrypts such records by the keys of their days, and sends those that ingest takes by now.

    They stay in quarantine, as their offsets do in the log. Sent twice, before ingest has them, a record counts once.

    Raises:
        BadArgument: the topic has no columns of persons, or is compacted, where an older record would win.
        KafkaError: the broker does not take one; those before it are sent.
    """
    if not personal_columns(topic) or topic.compacted:
        why = "is compacted: an older record would replace a newer one" if topic.compacted else "has none of persons"
        raise BadArgument(f"{topic.full_name} {why}.", hint=f"`{COMMAND} redrive` decodes quarantined records again.")
    quarantined = lake.open(topic.full_name + QUARANTINE).scan()
    rows = query(f"FROM quarantine WHERE {WHOLE} ORDER BY {PARTITION}, {OFFSET}", quarantine=quarantined)
    with closing(KeyStore(lake.settings)) as store:
        opened = [unseal(value.decode(), store.find, RECORD) for value in rows["value"].to_pylist()]
        sealer = RecordSealer(topic, store)
        values = [sealer.seal(value) for value in opened if value is not None]
    kept = rows.filter(pa.array([value is not None for value in opened], pa.bool_()))
    kept = kept.set_column(kept.column_names.index("value"), "value", pa.array(values, pa.binary()))
    names = {PARTITION: "partition", OFFSET: "offset", APPENDED_AT: "timestamp"}
    raw = kept.rename_columns([names.get(name, name) for name in kept.column_names]).select(raw_columns(topic))
    accepted = Decoder(topic).decode(raw, None).accepted
    places = _new(lake, topic, accepted)
    chosen = [row for row in kept.to_pylist() if (row[PARTITION], row[OFFSET]) in places]
    headers = [[(header["key"], header["value"]) for header in row[HEADERS] or []] for row in chosen]
    of_rows = zip(chosen, headers, strict=True)
    sent = [producer.send(topic.full_name, row["value"], row["key"], theirs) for row, theirs in of_rows]
    for future in sent:
        future.get()
    return SentAgain(
        sent=len(places),
        there=len(accepted) - len(places),
        refused=len(kept) - len(accepted),
        ended=len(rows) - len(kept),
    )


def _new(lake: Lake, topic: Topic, accepted: pa.Table) -> set[tuple[int, int]]:
    """Returns partition and offset of the events that are not there yet, each identity once."""
    identity = list(dict.fromkeys([*topic.dedup_keys, topic.event_time]))
    same = " AND ".join(f"a.{column} IS NOT DISTINCT FROM e.{column}" for column in map(DUCKDB.name, identity))
    found = query(
        f"SELECT {PARTITION}, {OFFSET} FROM accepted a WHERE NOT EXISTS (FROM events e WHERE {same}) "
        f"QUALIFY row_number() OVER (PARTITION BY {DUCKDB.names(identity)} ORDER BY {PARTITION}, {OFFSET}) = 1",
        accepted=accepted,
        events=lake.open(topic.full_name).scan(columns=identity),
    )
    return set(zip(found[PARTITION].to_pylist(), found[OFFSET].to_pylist(), strict=True))
