"""Some of many persons are forgotten while records arrive: nothing of any of them is anywhere in the clear."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import snappy
import zstandard

from tests.support.personal_search import found_in
from tests.tables.declared import written
from twofold.features.persons.export import export
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.keys.reader import Reader
from twofold.features.persons.records.plain_text import plain_text_records
from twofold.features.persons.records.record_sealer import sealing
from twofold.features.persons.records.sealed_records import SentAgain, send_sealed_again
from twofold.features.persons.records.sealed_topics import require_sealed
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.errors import BadDeclaration, BadSetting
from twofold.infra.kafka import topic_admin
from twofold.infra.kafka.record_producer import producing
from twofold.infra.project.settings import Settings
from twofold.streaming.ingest.topic_writer import TopicWriter
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA
from twofold.tables.refresh.events.topic_specs import spec
from twofold.tables.refresh.open_platform import ensure_topics_of

pytestmark = pytest.mark.platform

DECLARED = '''
    """Logins."""
    from twofold import Topic, field, personal
    TOPIC = Topic(
        schema={
            "login_id": "long", "customer": "string", "at": "timestamp", "country": "string",
            "mail": personal("customer"), "phone": personal("customer", path="contact.phone"),
        },
        event_time="at", message_key="customer", dedup_keys=["login_id"], unknown_fields="keep", partitions=2,
    )
    '''
PERSONS, FORGOTTEN, ROUNDS = 40, 10, 6
START = datetime.now(UTC) - timedelta(hours=1)


def mail_of(person: int) -> str:
    return f"secret.{person:03}.of@example-{person * 7919:06}.org"


def record(number: int) -> dict[str, Any]:
    person = number % PERSONS
    return {
        "login_id": number,
        "customer": f"c{person}",
        "at": (START + timedelta(seconds=number)).isoformat(),
        "country": "FR",
        "mail": mail_of(person),
        "contact": {"phone": f"+33-{mail_of(person)}", "fax": f"fax {mail_of(person)}"},
        "nick": [mail_of(person)],
    }


class Platform:
    """A domain with one topic on a broker, whose ingest is run by hand."""

    def __init__(self, broker: Settings, folder: Path, name: str) -> None:
        self.settings = replace(broker, home=folder / "home", bootstrap=broker.bootstrap_servers, engine="delta-rs")
        self.registry: Registry = load(written(folder / "declared", {f"bank/{name}.py": DECLARED}))
        self.topic: Topic = self.registry.topics[f"bank.{name}"]
        self.lake = Lake(self.settings)

    def start(self) -> None:
        require_sealed(self.settings, [self.topic])
        topic_admin.ensure_topics(self.settings, [spec(self.topic)])
        self.ingested = dict.fromkeys(range(self.topic.partitions), 0)

    def ingest(self, lake: Lake | None = None) -> None:
        """Writes all records that the log has and the lake has not."""
        lake = lake or self.lake
        ensure_topics_of(lake, self.registry, "bank")
        writer = TopicWriter(None, lake, self.topic)  # type: ignore[arg-type]
        writer.began = dict.fromkeys(range(self.topic.partitions), 0)
        rows = list(self.log())
        ends = {p: max([r["offset"] + 1 for r in rows if r["partition"] == p], default=0) for p in writer.began}
        ranges = {p: (0, end) for p, end in ends.items() if end}
        writer.take(pa.Table.from_pylist(rows, schema=RAW_SCHEMA), ranges)

    def log(self) -> Iterator[dict[str, Any]]:
        from kafka import KafkaConsumer, TopicPartition

        name = self.topic.full_name
        places = [TopicPartition(name, p) for p in range(self.topic.partitions)]
        with closing(KafkaConsumer(bootstrap_servers=self.settings.bootstrap_servers)) as consumer:
            consumer.assign(places)
            ends = consumer.end_offsets(places)
            for place in places:
                consumer.seek(place, 0)
            while any(consumer.position(place) < ends[place] for place in places):
                for place, records in consumer.poll(timeout_ms=1_000).items():
                    for r in records:
                        yield {
                            "partition": place.partition,
                            "offset": r.offset,
                            "timestamp": r.timestamp * 1_000,
                            "key": r.key,
                            "value": r.value,
                        }

    def events(self, lake: Lake | None = None) -> dict[int, dict[str, Any]]:
        """Login -> its event, with the values of persons revealed."""
        rows = pa.table((lake or self.lake).open(self.topic.full_name).scan())
        with closing(KeyStore(self.settings)) as store:
            reader = Reader(store, "test")
            for column in ("mail", "phone"):
                place = rows.column_names.index(column)
                rows = rows.set_column(place, column, reader.reveal(rows[column], 1))
        return {row["login_id"]: row for row in rows.select([*self.topic.columns, "_offset"]).to_pylist()}


def unusable(value: dict[str, Any]) -> list[bytes]:
    """What quarantine gets: no JSON, a name twice, no owner, another type, each with a mail in it."""
    text = json.dumps(value).encode()
    return [
        text[:-1],
        text.replace(b"{", b'{"mail": "x", ', 1),
        json.dumps({**value, "customer": None}).encode(),
        json.dumps({**value, "country": {"of": value["mail"]}}).encode(),
    ]


def send(platform: Platform, numbers: range) -> None:
    name = platform.topic.full_name
    with sealing(platform.settings, [platform.topic]) as seal, producing(platform.settings, outage_s=60) as producer:
        for number in numbers:
            value = record(number)
            producer.send(name, seal(name, json.dumps(value).encode()), value["customer"].encode())
        for bad in unusable(record(numbers.start)):
            producer.send(name, seal(name, bad))


def test_nothing_of_persons_is_in_the_clear_and_forgotten_ones_are_null(broker: Settings, tmp_path: Path) -> None:
    """Takes half a minute: the search opens whatever the broker and the lake have written."""
    platform = Platform(broker, tmp_path, "logins")
    platform.start()
    forgotten = range(0, PERSONS, PERSONS // FORGOTTEN)
    waiting = iter(forgotten)
    for turn in range(ROUNDS):
        send(platform, range(turn * 100, turn * 100 + 100))
        platform.ingest()
        with closing(KeyStore(platform.settings)) as store:
            for person in [next(waiting, None) for _ in range(2)]:
                if person is not None:
                    began = time.monotonic()
                    store.forget(Person("customer", f"c{person}"), 0)
                    assert time.monotonic() - began < 5
    send(platform, range(ROUNDS * 100, ROUNDS * 100 + PERSONS))  # late records of all, also of those forgotten
    platform.ingest()

    events = platform.events()
    assert len(events) == ROUNDS * 100 + PERSONS
    for number, event in events.items():
        person = number % PERSONS
        is_null = person in forgotten
        assert event["mail"] == (None if is_null else mail_of(person))
        assert event["phone"] == (None if is_null else f"+33-{mail_of(person)}")
        assert (event["customer"], event["country"]) == (f"c{person}", "FR")

    for table in (platform.topic.full_name, platform.topic.full_name + QUARANTINE):
        platform.lake.open(table).create_checkpoint()
    assert platform.lake.rows(platform.topic.full_name + QUARANTINE) == 4 * (ROUNDS + 1)
    texts = [mail_of(person) for person in range(PERSONS)]
    log_folders = sorted((broker.home / "kafka").rglob(f"{platform.topic.full_name}-*"))
    assert len(log_folders) == platform.topic.partitions
    assert found_in([*log_folders, platform.settings.home, broker.logs], texts) == {}

    again = Lake(replace(platform.settings, lake=str(tmp_path / "again")))
    platform.ingest(again)
    assert platform.events(again) == events

    with closing(KeyStore(platform.settings)) as store:
        [held] = export(platform.lake, platform.registry, store, Person("customer", "c1")).values()
        [gone] = export(platform.lake, platform.registry, store, Person("customer", "c0")).values()
    assert {row["mail"] for row in held} == {mail_of(1)}
    assert json.loads(held[0]["_rest"])["nick"] == [mail_of(1)]
    assert len(held) == len(gone) == sum(number % PERSONS == 1 for number in events)
    assert {row["phone"] for row in gone if row["phone"] is not None} & set(texts) == set()


def test_the_search_finds_what_is_hidden_in_any_way(tmp_path: Path) -> None:
    secret = "secret.001.of@example.org"
    plain = f"before {secret} after".encode()
    hidden = {
        "text": plain,
        "hex": plain.hex().encode(),
        "utf-16": plain.decode().encode("utf-16"),
        "base64": base64.b64encode(plain),
        "base64-1": base64.b64encode(plain[1:]),
        "base64-2": base64.b64encode(plain[2:]),
        "gzip": gzip.compress(plain),
        "zstd": zstandard.compress(plain * 20),
        "lz4": lz4.frame.compress(plain * 20),
        "snappy": snappy.compress(plain * 20),
    }
    for name, data in hidden.items():
        (tmp_path / name).write_bytes(data)
    for codec in ("zstd", "snappy", "gzip"):
        pq.write_table(pa.table({"a": [plain] * 50}), tmp_path / f"{codec}.parquet", compression=codec)
    assert {Path(f).name for f in found_in([tmp_path], [secret])[secret]} == {*hidden} | {
        f"{codec}.parquet" for codec in ("zstd", "snappy", "gzip")
    }


def test_the_search_opens_the_compressed_batches_of_a_topic(broker: Settings, tmp_path: Path) -> None:
    topic_admin.ensure_topics(broker, [topic_admin.TopicSpec(name="bank.open", partitions=1)])
    with producing(broker, outage_s=60) as producer:
        for _ in range(50):
            producer.send("bank.open", f"a text with {mail_of(1)}, again and again".encode())
    [folder] = (broker.home / "kafka").rglob("bank.open-0")
    assert list(found_in([folder], [mail_of(1), mail_of(2)])) == [mail_of(1)]


def test_plain_text_of_another_producer_is_a_problem_of_status(broker: Settings, tmp_path: Path) -> None:
    platform = Platform(broker, tmp_path, "other_logins")
    platform.start()
    send(platform, range(1))
    with producing(platform.settings, outage_s=60) as producer:
        producer.send(platform.topic.full_name, json.dumps(record(2)).encode(), b"c2", partition=1).get()
    platform.ingest()
    assert list(platform.events()) == [0]
    assert found_in([platform.settings.home], [mail_of(2)]) == {}
    quarantined = pa.table(platform.lake.open(platform.topic.full_name + QUARANTINE).scan()).to_pylist()
    [refused] = [row for row in quarantined if any(reason.startswith("matches(mail") for reason in row["reasons"])]
    [problem] = plain_text_records(platform.lake, platform.registry, datetime.now(UTC)).values()
    assert problem.startswith("bank.other_logins: 1 records of 7 days have values of persons in the clear")
    assert f"partition 1, offset {refused['_offset']} of the log" in problem
    assert plain_text_records(platform.lake, platform.registry, datetime.now(UTC) + timedelta(days=8)) == {}


def test_what_was_encrypted_as_a_whole_is_sent_again_by_persons_keys(broker: Settings, tmp_path: Path) -> None:
    platform = Platform(broker, tmp_path, "again_logins")
    platform.start()
    send(platform, range(1))
    records = [record(2), record(2), record(3), {**record(4), "at": "no time"}]
    with producing(platform.settings, outage_s=60) as producer:
        for number, value in enumerate(records):
            text = json.dumps(value).encode()
            producer.send(platform.topic.full_name, text, value["customer"].encode(), partition=number % 2).get()
    platform.ingest()
    assert list(platform.events()) == [0]

    def again() -> SentAgain:
        with producing(platform.settings, outage_s=60) as producer:
            return send_sealed_again(platform.lake, platform.topic, producer)

    unusable_ones = 4  # of `send`, none of which says whose it is
    assert again() == SentAgain(sent=2, there=1, refused=1 + unusable_ones - 1, ended=0)
    platform.ingest()
    assert {number: event["mail"] for number, event in platform.events().items()} == {
        0: mail_of(0),
        2: mail_of(2),
        3: mail_of(3),
    }
    assert again() == SentAgain(sent=0, there=3, refused=4, ended=0), "a second time it sends nothing"
    with closing(sqlite3.connect(platform.settings.keys_file, isolation_level=None)) as keys:
        keys.execute("UPDATE person SET forget_at_ms = 1 WHERE kind = '_day'")
    assert again() == SentAgain(sent=0, there=0, refused=0, ended=7)


def test_a_topic_with_plain_text_cannot_become_personal(broker: Settings, tmp_path: Path) -> None:
    platform = Platform(broker, tmp_path, "old_logins")
    topic_admin.ensure_topics(platform.settings, [spec(platform.topic)])
    with producing(platform.settings, outage_s=60) as producer:
        producer.send(platform.topic.full_name, json.dumps(record(2)).encode(), b"c2").get()
    with pytest.raises(BadSetting, match=r"No new one is made"):
        require_sealed(platform.settings, [platform.topic])
    Platform(broker, tmp_path, "new_logins").start()  # which makes the keys
    with pytest.raises(BadDeclaration, match=r"mail, phone cannot be personal, since the log of bank.old_logins"):
        require_sealed(platform.settings, [platform.topic])


def test_keys_are_made_before_the_first_record_and_never_after_it(broker: Settings, tmp_path: Path) -> None:
    platform = Platform(broker, tmp_path, "kept_logins")
    platform.start()
    send(platform, range(1))
    platform.start()
    for file in (platform.settings.keys_file, platform.settings.key_of_keys_file):
        moved = file.rename(f"{file}.moved")
        with pytest.raises(BadSetting, match=r"is missing\. No new one is made|cannot be read"):
            platform.start()
        assert not file.exists()
        moved.rename(file)
    platform.start()


def test_a_further_column_is_personal_unless_it_was_plain_before(broker: Settings, tmp_path: Path) -> None:
    platform = Platform(broker, tmp_path, "wider_logins")
    platform.start()
    send(platform, range(1))
    platform.ingest()
    more = DECLARED.replace('"country": "string",', '"country": "string", "nick": personal("customer"),')
    plain = DECLARED.replace('"country": "string",', '"country": personal("customer"),')
    for text, message in ((more, ""), (plain, "country cannot be personal")):
        changed = load(written(tmp_path / f"changed {bool(message)}", {"bank/wider_logins.py": text}))
        topics = list(changed.topics.values())
        if message:
            with pytest.raises(BadDeclaration, match=message):
                require_sealed(platform.settings, topics)
        else:
            require_sealed(platform.settings, topics)
