"""A real relay and a real broker: each captured record is in its topic, encrypted and in order, under kills, too."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from tests.harness.tiers import this_run
from tests.platform.supervised_driver import process
from tests.servers import wait_until
from tests.tables.declared import written
from twofold.features.capture.captured_table import INTAKE, LOST
from twofold.features.capture.captured_topic import intakes
from twofold.features.capture.operate import capture_states as captures
from twofold.features.persons import relay as program
from twofold.features.persons.keys.key_store import KeyStore
from twofold.features.persons.keys.reader import Reader
from twofold.features.persons.records.sealed_topics import require_sealed
from twofold.features.persons.tests.own_relay import DIES
from twofold.infra.errors import BadDeclaration
from twofold.infra.kafka import topic_admin
from twofold.infra.kafka.record_producer import producing
from twofold.infra.process import supervisor
from twofold.infra.project.chosen_domains import relay_name
from twofold.infra.project.settings import Settings
from twofold.status.parts.snapshot import CaptureState
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.events.topic_specs import specs

pytestmark = pytest.mark.platform

DOMAIN = "tenancy"
KILLS = this_run.kills or 3
CLIENTS = '''\
"""Clients of a database."""
from twofold import changes_of, domain_of, personal

TOPIC = changes_of(
    "public.clients",
    columns={"client": "string", "n": "long", "mail": personal("client"), "domain": domain_of("mail")},
    primary_key=["client"],
    segment_bytes=1 << 20,
)
'''
LETTERS = '''\
"""Letters of a service."""
from twofold import outbox_of, personal

TOPIC = outbox_of(
    "public.outbox", schema={"sender": "string", "text": personal("sender"), "at": "timestamp"}, event_time="at"
)
'''
PLAIN = '''\
"""Payments of a database."""
from twofold import changes_of

TOPIC = changes_of("public.payments", columns={"id": "long"}, primary_key=["id"])
'''


def mail_of(n: int) -> str:
    return f"Secret.{n}@Example-{n % 3}.org"


def change(n: int, **row: Any) -> bytes:
    """A change as Debezium writes it; `lsn` says its place."""
    source = {"name": "twofold_1_shop_clients", "sequence": f'["{n}","{n + 1}"]', "ts_us": 1_000_000 + n, "lsn": n + 1}
    after = {"client": f"c{n % 7}", "n": n, "mail": mail_of(n), **row}
    return json.dumps({"before": None, "after": after, "source": source, "op": "u"}).encode()


@dataclass(frozen=True)
class Relayed:
    """A domain whose records a supervised relay encrypts, with a home of its own; most tests have a topic there."""

    settings: Settings
    registry: Registry

    @property
    def relay(self) -> str:
        return relay_name(DOMAIN)

    def send(self, topic: str, values: Sequence[bytes | None], **given: Any) -> None:
        with producing(self.settings, outage_s=60, most_bytes=1 << 21) as producer:
            for value in values:
                producer.send(topic + INTAKE, value, b"key", partition=0, **given)

    def records(self, topic: str) -> list[Any]:
        """Reads a topic whole."""
        place = TopicPartition(topic, 0)
        consumer = KafkaConsumer(bootstrap_servers=self.settings.bootstrap_servers, enable_auto_commit=False)
        with closing(consumer):
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            end, found = consumer.end_offsets([place])[place], list[Any]()
            while consumer.position(place) < end:
                found += consumer.poll(timeout_ms=500).get(place, [])
        return found

    def left(self, topic: str) -> int:
        bounds = topic_admin.offsets(self.settings, [topic + INTAKE])[topic + INTAKE][0]
        return bounds.latest - bounds.earliest

    def wait_relayed(self, topic: str) -> None:
        wait_until(lambda: not self.left(topic), 120)

    def revealed(self, texts: Sequence[str | None]) -> list[str | None]:
        with closing(KeyStore(self.settings)) as store:
            return Reader(store, "test").values(texts)[0]


@pytest.fixture(scope="module")
def relayed(broker: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relayed]:
    """Topics are made once: a broker on a busy machine takes seconds for each."""
    files = {f"{DOMAIN}/{name}.py": CLIENTS for name in ("clients", "killed", "idle", "gone", "late", "large")}
    files |= {f"{DOMAIN}/letters.py": LETTERS, f"{DOMAIN}/payments.py": PLAIN}
    folder = written(tmp_path_factory.mktemp("tables"), files)
    registry = load(folder).require_sound()
    settings = Settings(home=tmp_path_factory.mktemp("home"), bootstrap=broker.bootstrap_servers)
    require_sealed(settings, registry.topics.values())
    topic_admin.ensure_topics(broker, specs(registry))
    [own] = program.SERVICE.programs(settings, registry)
    command = [sys.executable, "-m", "twofold.features.persons.tests.own_relay", str(folder), DOMAIN]
    try:
        supervisor.start(settings, [replace(own, command=command)])
        yield Relayed(settings, registry)
    finally:
        supervisor.stop(settings)


def segments_with(broker: Settings, topic: str, text: bytes) -> list[str]:
    """Lists the files of a topic's log that have a text."""
    found = []
    for file in (broker.home / "kafka" / "log" / f"{topic}-0").glob("*.log*"):
        try:
            found += [file.name] if text in file.read_bytes() else []
        except FileNotFoundError:
            continue
    return found


def test_each_record_is_in_its_topic_under_its_key_and_headers(relayed: Relayed) -> None:
    letter = {"sender": "ann", "text": "hello", "at": "2026-11-27T12:00:00Z"}
    topic = "tenancy.letters"
    relayed.send(topic, [json.dumps(letter).encode(), None], headers=[("id", b"1"), ("type", b"sent")])
    relayed.send("tenancy.clients", [change(n) for n in range(20)])
    for name in (topic, "tenancy.clients"):
        relayed.wait_relayed(name)
    sent, tombstone = relayed.records(topic)
    assert relayed.revealed([json.loads(sent.value)["text"]]) == ["hello"]
    assert (sent.key, dict(sent.headers)["id"], dict(sent.headers)["type"]) == (b"key", b"1", b"sent")
    assert (tombstone.key, tombstone.value, dict(tombstone.headers)["id"]) == (b"key", None, b"1")
    rows = [json.loads(record.value)["after"] for record in relayed.records("tenancy.clients")]
    assert [row["n"] for row in rows] == [*range(20)]
    assert [row["domain"] for row in rows] == [f"example-{n % 3}.org" for n in range(20)]
    assert relayed.revealed([row["mail"] for row in rows]) == [mail_of(n) for n in range(20)]
    names = {spec.name: spec.configs for spec in specs(relayed.registry)}
    assert "tenancy.payments.intake" not in names
    assert "remote.storage.enable" not in names["tenancy.clients.intake"]


def is_killed(relayed: Relayed) -> bool:
    """Kills the relay; False if it does not run, or has just ended without the supervisor having seen it."""
    pid = process(relayed.settings, relayed.relay).pid
    with suppress(ProcessLookupError):
        if pid:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


@pytest.mark.kills
def test_a_relay_that_is_killed_repeats_a_tail_at_most(relayed: Relayed) -> None:
    """Once after the topic has records and before the intake is emptied, then at any moment."""
    sent, dice = 0, random.Random(this_run.seed)
    for round in range(KILLS):
        if round == 0:
            (relayed.settings.home / DIES).touch()
        for _ in range(4):
            relayed.send("tenancy.killed", [change(n) for n in range(sent, sent + 200)])
            sent += 200
            time.sleep(dice.uniform(0, 0.2))
        if round:
            wait_until(lambda: is_killed(relayed), 60)
        else:
            wait_until(lambda: not (relayed.settings.home / DIES).exists(), 60)
    relayed.wait_relayed("tenancy.killed")
    rows = [json.loads(record.value)["after"] for record in relayed.records("tenancy.killed")]
    first = list(dict.fromkeys(row["n"] for row in rows))
    assert first == [*range(sent)], "none is missing, and each is first seen in order"
    texts = {row["n"]: row["mail"] for row in rows}
    assert all(texts[row["n"]] == row["mail"] for row in rows), "what is repeated is the same record"
    assert relayed.revealed([texts[n] for n in range(sent)]) == [mail_of(n) for n in range(sent)]
    assert len(rows) - sent <= 60 * (KILLS - 1), "what the topic named when it died is not repeated"


def test_what_was_read_leaves_the_disk_though_nothing_more_arrives(broker: Settings, relayed: Relayed) -> None:
    """Segments of an intake are closed at a minute by the clock; here after a second."""
    [spec] = intakes(relayed.registry.topics["tenancy.idle"])
    topic_admin.ensure_topics(broker, [replace(spec, configs={**spec.configs, "segment.ms": "1000"})])
    supervisor.stop_program(relayed.settings, relayed.relay)
    with closing(KafkaProducer(bootstrap_servers=relayed.settings.bootstrap_servers)) as uncompressed:
        uncompressed.send("tenancy.idle.intake", change(1), partition=0).get()
    intake, mail = "tenancy.idle.intake", mail_of(1).encode()
    assert segments_with(broker, intake, mail)
    supervisor.start_program(relayed.settings, relayed.relay)
    wait_until(lambda: not segments_with(broker, intake, mail), 60)
    relayed.wait_relayed("tenancy.idle")
    assert len(relayed.records("tenancy.idle")) == 1, "what closes a segment is no record"


def test_a_gap_in_the_intake_is_a_change_that_ingest_refuses(relayed: Relayed) -> None:
    relayed.send("tenancy.gone", [change(0)])
    relayed.wait_relayed("tenancy.gone")
    supervisor.stop_program(relayed.settings, relayed.relay)
    relayed.send("tenancy.gone", [change(n) for n in range(1, 6)])
    place = TopicPartition("tenancy.gone.intake", 0)
    with closing(KafkaAdminClient(bootstrap_servers=relayed.settings.bootstrap_servers)) as admin:
        admin.delete_records({place: topic_admin.offsets(relayed.settings, [place.topic])[place.topic][0].latest - 2})
    supervisor.start_program(relayed.settings, relayed.relay)
    relayed.wait_relayed("tenancy.gone")
    values = [json.loads(record.value) for record in relayed.records("tenancy.gone")]
    assert [value["op"] for value in values] == ["u", LOST, "u", "u"]
    assert [value["after"]["n"] for value in values if "after" in value] == [0, 4, 5]


def test_status_says_how_many_records_wait_and_whether_for_long(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = CaptureState(
        topic="tenancy.late", table="public.clients", state="RUNNING", slot="reserved", retained_bytes=0
    )

    def found() -> CaptureState:
        return captures.with_intakes(relayed.settings, relayed.registry, [state], ["tenancy.late"], datetime.now(UTC))[
            0
        ]

    relayed.send("tenancy.late", [change(0)])
    relayed.wait_relayed("tenancy.late")
    assert (found().waiting, found().fault) == (0, "")
    supervisor.stop_program(relayed.settings, relayed.relay)
    relayed.send("tenancy.late", [change(n) for n in range(3)])
    assert (found().waiting, found().fault) == (3, "")
    monkeypatch.setattr(captures, "LATE_S", -60)
    assert found().fault.startswith("3 records wait to be encrypted, the oldest for ")
    assert "relay-tenancy.log" in found().hint
    supervisor.start_program(relayed.settings, relayed.relay)
    relayed.wait_relayed("tenancy.late")


def test_what_is_captured_neither_becomes_personal_nor_ceases_to_be(relayed: Relayed, tmp_path: Path) -> None:
    with producing(relayed.settings, outage_s=60) as producer:
        producer.send("tenancy.payments", b"{}", partition=0).get()
    for name, text, message, hint in (
        (
            "payments",
            PLAIN.replace('"id": "long"', '"id": "long", "iban": personal("id")'),
            "plain text",
            "new snapshot",
        ),
        (
            "clients",
            CLIENTS.replace('personal("client"), "domain": domain_of("mail")', '"string"'),
            "were personal",
            "so again",
        ),
    ):
        text = text.replace("import changes_of\n", "import changes_of, personal\n")
        changed = load(written(tmp_path / name, {f"{DOMAIN}/{name}.py": text})).require_sound()
        with pytest.raises(BadDeclaration, match=message) as refused:
            require_sealed(relayed.settings, changed.topics.values())
        assert hint in str(refused.value.hint)


def test_a_record_that_grows_too_large_does_not_hold_up_others(relayed: Relayed) -> None:
    """The topic takes 1 MiB; its intake less, which many small values outgrow all the same."""
    many = {f"x{n}": n for n in range(13_000)}
    assert len(change(1, **many)) < 300_000
    relayed.send("tenancy.large", [change(0), change(1, **many), change(2)])
    relayed.wait_relayed("tenancy.large")
    one, whole, two = (record.value for record in relayed.records("tenancy.large"))
    assert whole.startswith(b"enc:1:")
    assert [json.loads(value)["after"]["n"] for value in (one, two)] == [0, 2]
