"""Fifty of 300 persons are forgotten while records arrive and outputs reveal: no file has anything of them any more."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.infra.webhooks.signed import secret
from tests.servers import wait_until
from tests.support.personal_search import found_in
from tests.support.postgres import Server
from twofold import to_postgres, to_search, to_webhook
from twofold.features.outputs.copy_comparison import compare_copy
from twofold.features.outputs.follow import runner
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.tests.revealed_table import SCHEMA, RevealedTable, mail_of
from twofold.features.outputs.tests.webhook_receiver import Answer, Receiver, Request, receiving
from twofold.features.persons.certificate import certify
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.records.record_sealer import sealing
from twofold.features.persons.tests.records.test_forgotten_persons import START, Platform
from twofold.features.search.search_index import SearchIndex
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.kafka.record_producer import producing
from twofold.infra.postgres import postgres_server
from twofold.infra.postgres.database_connection import password
from twofold.infra.process.file_locks import is_held
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry

pytestmark = [pytest.mark.platform, pytest.mark.prove]

PERSONS, ROUNDS = 300, 10
NAMES = [f"person{number}" for number in range(PERSONS)]
GONE = NAMES[::6]
REVEALED = {"reveal": ["mail"]}
OUTPUTS = [
    to_postgres(destination="copies", **REVEALED),
    to_search(name="found", text=["mail"], **REVEALED),
    to_webhook("hook", begin="all", **REVEALED),
]


class Bank:
    """A topic of logins on a broker, a table of the newest login of each customer, and its three outputs."""

    def __init__(self, broker: Settings, postgres: Server, receiver: Receiver, folder: Path) -> None:
        self.platform = Platform(broker, folder, "proved_logins")
        file = folder / "destinations"
        at = f"twofold:{password(postgres.settings)}@127.0.0.1:{postgres.settings.database_port}/outputs"
        file.write_text(f"copies = postgresql://{at}\nhook = {receiver.url} {secret()}\n")
        file.chmod(0o600)
        settings = replace(
            self.platform.settings, destinations=str(file), webhook_networks="127.0.0.0/8", lake=str(folder / "lake")
        )
        self.platform.settings, self.platform.lake = settings, replace(self.platform.lake, settings=settings)
        self.platform.start()
        self.people = RevealedTable(self.platform.lake)
        self.table = replace(self.people.table, outputs=OUTPUTS)
        topics = self.platform.registry.topics
        self.registry = Registry(topics, {self.table.full_name: self.table})

    def arrive(self, names: list[str], turn: int) -> None:
        """Send a login of each, ingest it, and publish its row."""
        topic = self.platform.topic.full_name
        with (
            sealing(self.platform.settings, [self.platform.topic]) as seal,
            producing(self.platform.settings, outage_s=60) as producer,
        ):
            for number, name in enumerate(names):
                login = {
                    "login_id": turn * 1_000 + number,
                    "customer": name,
                    "at": (START + timedelta(seconds=turn)).isoformat(),
                    "country": "FR",
                    "mail": mail_of(name),
                    "contact": {"phone": mail_of(name)},
                }
                producer.send(topic, seal(topic, json.dumps(login).encode()), name.encode())
        self.platform.ingest()
        events = pa.table(self.platform.lake.open(topic).scan()).to_pylist()
        newest = {event["customer"]: event for event in sorted(events, key=lambda event: event["login_id"])}
        rows = [
            {"k": name, "mail": newest[name]["mail"], "note": f"turn {turn}", "closes_at": newest[name]["at"]}
            for name in names
        ]
        Writer(self.platform.lake, self.table.full_name).upsert(
            pa.Table.from_pylist(rows, SCHEMA), ["k"], self.people.next_tag()
        )

    @contextmanager
    def outputs_running(self) -> Iterator[None]:
        stop: list[Callable[..., None]] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(signal, "signal", lambda number, handler: stop.append(handler))
            thread = threading.Thread(target=runner.run, args=(self.platform.settings, self.registry))
            thread.start()
            lock = self.platform.settings.home / "run" / "outputs.lock"
            wait_until(lambda: stop and is_held(lock), 60)
        try:
            yield
        finally:
            stop[0]()
            thread.join()

    def is_followed(self) -> bool:
        lake = self.platform.lake
        with closing(KeyStore(self.platform.settings)) as store:
            now = (lake.version(self.table.full_name), store.last_end())
        positions = [open_target(lake, self.table, output).position() for output in OUTPUTS]
        return all(p is not None and p.heading is None and (p.version, p.forgotten) == now for p in positions)


def newest_mails(receiver: Receiver) -> dict[str, str | None]:
    """The mail of each row as the receiver of a webhook knows it."""
    known: dict[str, str | None] = {}
    for request in receiver.requests:  # a change comes after the earlier ones of its key
        change: dict[str, Any] = request.change
        known[change["key"]["k"]] = change["after"]["mail"]
    return known


def test_no_file_has_anything_of_those_who_were_forgotten_under_traffic(
    broker: Settings, postgres: Server, tmp_path: Path
) -> None:
    """Takes minutes: ten rounds of traffic and forgetting, then all bytes of broker, lake, index and database."""
    postgres.without_copies("plant")

    def now_and_then(request: Request) -> Answer:
        return (500, {}, request.body.decode()) if random.random() < 0.2 else (200, {}, "")

    with receiving(Receiver(answer=now_and_then)) as receiver:
        bank = Bank(broker, postgres, receiver, tmp_path)
        platform, waiting = bank.platform, iter(GONE)
        with bank.outputs_running():
            bank.arrive(NAMES, 0)
            for turn in range(1, ROUNDS + 1):
                bank.arrive(random.sample(NAMES, 60), turn)
                with closing(KeyStore(platform.settings)) as store:
                    for name in [next(waiting) for _ in range(len(GONE) // ROUNDS)]:
                        store.forget(Person("customer", name), 0)
            bank.arrive(NAMES[:12], ROUNDS + 1)
            wait_until(bank.is_followed, 300)
            receiver.answer = lambda request: (200, {}, "")
            queue = open_target(platform.lake, bank.table, OUTPUTS[2])
            wait_until(lambda: queue.waiting() == (0, ""), 300)  # type: ignore[attr-defined]
        expected = {name: None if name in GONE else mail_of(name) for name in NAMES}
        assert newest_mails(receiver) == expected

    assert dict(postgres.run("SELECT k, mail FROM plant.hours")) == expected
    for output in OUTPUTS[:2]:
        found = compare_copy(platform.lake, bank.table, open_target(platform.lake, bank.table, output))
        assert found is not None
        assert (found.rows, found.differing) == (PERSONS, 0)
    index = open_target(platform.lake, bank.table, OUTPUTS[1])
    assert isinstance(index, SearchIndex)
    assert [len(index.find(mail_of(name), 3)) for name in (GONE[0], NAMES[1])] == [0, 1]

    postgres.run("CHECKPOINT")
    base = postgres_server.data_directory(postgres.settings) / "base"
    log_folders = sorted((broker.home / "kafka").rglob(f"{platform.topic.full_name}-*"))
    everything = [*log_folders, platform.settings.home, tmp_path / "lake", broker.logs, index.folder, base]
    kept = [mail_of(name) for name in NAMES if name not in GONE]
    found_texts = found_in(everything, [*map(mail_of, GONE), *kept])
    assert set(found_texts) == set(kept), "nothing of the forgotten ones; the search finds all others"
    places = {place for files in found_texts.values() for place in files}
    assert all(Path(place).is_relative_to(base) or Path(place).is_relative_to(index.folder) for place in places)

    with closing(KeyStore(platform.settings)) as store:
        person = Person("customer", GONE[-1])  # no record of theirs came after
        state = store.state_of(person)
        assert state is not None
        proof = certify(platform.lake, bank.registry, store, store.ref(person), state)
    assert proof.is_complete
    assert {one.part for one in proof.found} == {"events", "table", "postgres", "search", "webhook"}
