"""A real receiver and a real broker: what was answered for is in the log, under hostile clients and kills, too."""

from __future__ import annotations

import http.client
import json
import random
import shutil
import socket
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.infra.conftest import free_port
from tests.infra.webhooks.signed import github
from tests.platform.supervised_driver import kill, process
from tests.servers import wait_until
from tests.support.published_webhooks import examples, signatures
from tests.tables.declared import written
from twofold.features.persons.keys.key_store import KeyStore
from twofold.features.persons.keys.reader import Reader
from twofold.features.persons.records.sealed_topics import require_sealed
from twofold.features.webhooks import receiver as program
from twofold.features.webhooks.bounded_http import CONNECTIONS
from twofold.features.webhooks.tests.own_receiver import DIES
from twofold.infra.kafka import broker as kafka
from twofold.infra.kafka import topic_admin
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.webhook_secrets import add_missing
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.events.record_decoder import Decoder
from twofold.tables.refresh.events.topic_specs import specs
from twofold_archive.format.record_columns import HEADERS, HEADERS_TYPE

pytestmark = pytest.mark.platform

JSON = {"content-type": "application/json"}
SECRET = "two words"
PUSHES = '''\
"""Pushes, which say no time."""
from twofold import from_webhook

TOPIC = from_webhook(scheme="github", schema={"n": "int"})
'''
NOTICES = '''\
"""Notices with a time."""
from twofold import from_webhook

TOPIC = from_webhook(scheme="github", schema={"at": "timestamp"}, event_time="at")
'''
EXAMPLES = '''\
"""Examples of all that GitHub sends."""
from twofold import from_webhook

TOPIC = from_webhook(scheme="github", schema={"repository": "json?", "sender": "json?"})
'''
PAYMENTS = '''\
"""Payments, with the mail of who paid."""
from twofold import from_webhook, personal

TOPIC = from_webhook(scheme="github", schema={"payer": "string", "mail": personal("payer"), "cents": "int"})
'''
_ids = count(1)


@dataclass(frozen=True)
class Receiver:
    """A supervised receiver, with a home of its own."""

    settings: Settings
    registry: Registry

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.settings.webhook_port, timeout=30)

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.settings.webhook_port), timeout=30)


@pytest.fixture(scope="module")
def receiver(broker: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    folder = written(
        tmp_path_factory.mktemp("declared"),
        {"hub/pushes.py": PUSHES, "hub/notices.py": NOTICES, "hub/examples.py": EXAMPLES, "hub/payments.py": PAYMENTS},
    )
    registry = load(folder).require_sound()
    home = tmp_path_factory.mktemp("receiver")
    settings = Settings(home=home, bootstrap=broker.bootstrap_servers, webhook_port=free_port())
    require_sealed(settings, registry.topics.values())
    topic_admin.ensure_topics(broker, specs(registry))
    secrets = settings.webhook_secrets_file
    secrets.touch(mode=0o600)
    secrets.write_text(f"hub.pushes = {SECRET}\nhub.examples = {SECRET}\nhub.payments = {SECRET}\n")
    add_missing(settings, [*registry.topics])
    [own] = program.SERVICE.programs(settings, registry)
    command = [sys.executable, "-m", "twofold.features.webhooks.tests.own_receiver", str(folder)]
    try:
        supervisor.start(settings, [replace(own, command=command)])
        [wait] = program.SERVICE.ready(settings, registry)
        wait.run()
        yield Receiver(settings, registry)
    finally:
        supervisor.stop(settings)


def body_of(n: int) -> bytes:
    return json.dumps({"n": n, "grüße": "\u0000"}, ensure_ascii=False).encode()


def signed(body: bytes, id: str) -> dict[str, str]:
    return {**JSON, **github(body, key=SECRET, id=id), "x-github-event": "push"}


def post(
    receiver: Receiver, body: bytes, id: str, connection: http.client.HTTPConnection | None = None
) -> tuple[int, dict[str, Any], http.client.HTTPMessage]:
    """The status, the JSON and the headers of an answer."""
    own = connection or receiver.connection()
    own.request("POST", "/hub/pushes", body, signed(body, id))
    answer = own.getresponse()
    found = answer.status, json.loads(answer.read()), answer.headers
    if connection is None:
        own.close()
    return found


def new_id() -> str:
    return f"d{next(_ids)}"


@dataclass
class Found:
    """The records of one delivery in the log."""

    bodies: list[bytes] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    headers: list[Mapping[str, bytes]] = field(default_factory=list)


def log_of(receiver: Receiver, topic: str = "hub.pushes") -> dict[str, Found]:
    """Id of a delivery -> its records, of all that the topic holds."""
    from kafka import KafkaConsumer, TopicPartition

    ends = {p: o.latest for p, o in topic_admin.offsets(receiver.settings, [topic])[topic].items()}
    consumer = KafkaConsumer(bootstrap_servers=receiver.settings.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, p) for p in ends])
    found: dict[str, Found] = defaultdict(Found)
    left = sum(ends.values())
    while left:
        for records in consumer.poll(timeout_ms=1_000).values():
            for record in records:
                headers = dict(record.headers)
                one = found[headers["webhook-id"].decode()]
                one.bodies.append(record.value)
                one.keys.append(record.key)
                one.headers.append(headers)
                left -= 1
    consumer.close()
    return found


def test_what_is_answered_for_is_in_the_log_byte_for_byte(receiver: Receiver) -> None:
    id, body = new_id(), body_of(1)
    status, answer, _ = post(receiver, body, id)
    assert (status, answer) == (202, {"id": id})
    found = log_of(receiver)[id]
    assert (found.bodies, found.keys) == ([body], [id.encode()])
    assert sorted(found.headers[0]) == ["webhook-id", "webhook-received-at", "x-github-event"]
    assert found.headers[0]["x-github-event"] == b"push"


def test_what_is_personal_is_encrypted_before_the_log(receiver: Receiver) -> None:
    """The signature is of the body as it was sent; sent again, it is the same record."""
    id, body = new_id(), b'{"payer": "p1", "mail": "p1@b.c", "cents": 5, "note": "for p1"}'
    with closing(receiver.connection()) as own:
        for _ in range(2):
            own.request("POST", "/hub/payments", body, signed(body, id))
            answer = own.getresponse()
            assert (answer.status, json.loads(answer.read())) == (202, {"id": id})
    first, second = log_of(receiver, "hub.payments")[id].bodies
    assert first == second
    record = json.loads(first)
    assert (record["payer"], record["cents"]) == ("p1", 5)
    assert b"p1@b.c" not in first
    with closing(KeyStore(receiver.settings)) as store:
        assert Reader(store, "test").values([record["mail"], record["note"]])[0] == ["p1@b.c", "for p1"]


def test_the_longest_body_that_is_personal_is_in_the_log(receiver: Receiver) -> None:
    """Encrypted it is a third longer, for the producer, the broker and ingest."""
    id, body = new_id(), b'{"payer": "p1", "mail": "%b"}' % (b"x" * 999_970)
    with closing(receiver.connection()) as own:
        own.request("POST", "/hub/payments", body, signed(body, id))
        answer = own.getresponse()
        assert (answer.status, json.loads(answer.read())) == (202, {"id": id})
    [record] = log_of(receiver, "hub.payments")[id].bodies
    assert 1_333_000 < len(record) < receiver.registry.topics["hub.payments"].max_bytes


def test_a_delivery_that_is_sent_again_has_its_first_time(receiver: Receiver) -> None:
    id = new_id()
    assert [post(receiver, body_of(2), id)[0] for _ in range(3)] == [202] * 3
    found = log_of(receiver)[id]
    assert found.bodies == [body_of(2)] * 3
    assert len({headers["webhook-received-at"] for headers in found.headers}) == 1


def test_a_receiver_killed_before_its_answer_makes_one_event_of_one_time(receiver: Receiver) -> None:
    id = new_id()
    starts = process(receiver.settings, "receiver").starts
    (receiver.settings.home / DIES).touch()
    with pytest.raises((OSError, http.client.HTTPException)):
        post(receiver, body_of(3), id)
    wait_until(lambda: process(receiver.settings, "receiver").starts == starts + 1)
    [wait] = program.SERVICE.ready(receiver.settings, receiver.registry)
    wait.run()
    assert post(receiver, body_of(3), id)[0] == 202
    found = log_of(receiver)[id]
    assert found.bodies == [body_of(3)] * 2
    assert len({headers["webhook-received-at"] for headers in found.headers}) == 1


def test_a_hundred_senders_at_once_are_answered(receiver: Receiver) -> None:
    ids = [new_id() for _ in range(100)]
    with ThreadPoolExecutor(100) as senders:
        statuses = Counter(senders.map(lambda id: post(receiver, body_of(4), id)[0], ids))
    assert statuses == {202: 100}
    found = log_of(receiver)
    assert [len(found[id].bodies) for id in ids] == [1] * 100


def answer_to(receiver: Receiver, *parts: bytes, pause_s: float = 0.0) -> tuple[int, dict[str, Any]]:
    """The status and the JSON that a raw request gets, sent in parts until the connection is closed."""
    with receiver.socket() as own:
        for part in parts:
            with suppress(OSError):
                own.sendall(part)
            time.sleep(pause_s)
        answer = http.client.HTTPResponse(own)
        answer.begin()
        return answer.status, json.loads(answer.read())


HEAD = b"POST /hub/pushes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def raw_head(body: bytes, id: str) -> bytes:
    headers = {name: value for name, value in signed(body, id).items() if name != "content-type"}
    return HEAD + b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())


def test_a_body_in_chunks_is_accepted(receiver: Receiver) -> None:
    id, body = new_id(), body_of(5)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    assert answer_to(receiver, raw_head(body, id) + b"Transfer-Encoding: chunked\r\n\r\n", chunks)[0] == 202
    assert log_of(receiver)[id].bodies == [body]


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([b"hello\r\n\r\n"], 400),
        ([HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}"], 400),
        ([HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}"], 400),
        ([HEAD + b"Content-Length: -1\r\n\r\n"], 400),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"], 400),
        ([HEAD + b"X: a\x00b\r\n\r\n"], 400),
        ([HEAD + b"Content-Length: 99999999999999\r\n\r\n"], 413),
        ([HEAD, *[b"X-More: " + b"y" * 8_000 + b"\r\n"] * 5], 431),
        ([HEAD + b"X-Endless: ", *[b"y" * 8_000] * 5], 431),
        ([b"POST /" + b"p" * 40_000], 431),
        ([HEAD], 408),
        ([HEAD + b"Content-Length: 20\r\n\r\n{"], 408),
        ([b""], 408),
    ],
)
def test_a_request_that_is_none_is_refused(receiver: Receiver, parts: list[bytes], status: int) -> None:
    """The receiver of these tests waits two seconds for a request."""
    before = sum(len(found.bodies) for found in log_of(receiver).values())
    found, reason = answer_to(receiver, *parts)
    assert (found, bool(reason["detail"])) == (status, True)
    assert sum(len(found.bodies) for found in log_of(receiver).values()) == before


def test_a_body_byte_by_byte_takes_no_longer_than_a_request_may(receiver: Receiver) -> None:
    body = body_of(6)
    head = raw_head(body, new_id()) + b"Content-Length: %d\r\n\r\n" % len(body)
    assert answer_to(receiver, head, *(bytes([byte]) for byte in body[:12]), pause_s=0.25)[0] == 408


def test_idle_connections_are_bounded_and_end(receiver: Receiver) -> None:
    idle = [receiver.socket() for _ in range(CONNECTIONS)]
    try:
        status, reason = answer_to(receiver, b"")
        assert (status, reason["detail"]) == (503, f"More than {CONNECTIONS} connections are open.")
        wait_until(lambda: _status(receiver) == 202, 30)
    finally:
        for own in idle:
            own.close()


def _status(receiver: Receiver) -> int:
    with suppress(OSError, http.client.HTTPException):
        return post(receiver, body_of(7), new_id())[0]
    return 0


def test_a_sender_that_goes_away_leaves_nothing(receiver: Receiver) -> None:
    id, body = new_id(), body_of(8)
    with receiver.socket() as own:
        own.sendall(raw_head(body, id) + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-1])
    assert post(receiver, body, new_id())[0] == 202
    assert id not in log_of(receiver)


@dataclass
class Load:
    """Senders that repeat each delivery until it is acknowledged.

    Attributes:
        acknowledged: ids.
        answers: status, or 0 for none -> how many.
    """

    receiver: Receiver
    per_s: int
    stop: threading.Event = field(default_factory=threading.Event)
    acknowledged: set[str] = field(default_factory=set)
    answers: Counter[int] = field(default_factory=Counter)
    odd: list[object] = field(default_factory=list)

    SENDERS = 40

    def run(self) -> None:
        """One sender: a delivery each `SENDERS / per_s` seconds."""
        connection = self.receiver.connection()
        due = time.monotonic() + random.random() * self.SENDERS / self.per_s
        while not self.stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + self.SENDERS / self.per_s, time.monotonic() - 1)
            id = new_id()
            while id not in self.acknowledged:
                try:
                    status, reason, headers = post(self.receiver, body_of(9), id, connection)
                except (OSError, http.client.HTTPException, ValueError):
                    status, reason, headers = 0, {}, http.client.HTTPMessage()
                    connection.close()
                    connection = self.receiver.connection()
                    time.sleep(0.2)
                self.answers[status] += 1
                if status == 202:
                    self.acknowledged.add(id)
                elif status == 503:
                    self.odd += [] if headers["retry-after"] == "5" and reason["detail"] else [(reason, str(headers))]
                    time.sleep(0.5)
                elif status:
                    self.odd.append((status, reason))
        connection.close()


def under_load(receiver: Receiver, broker: Settings, kills: list[Settings], pause_s: float) -> Load:
    """Kills these processes, one after the other, while 500 deliveries a second are sent."""
    load = Load(receiver, per_s=500)
    before = set(log_of(receiver))
    with ThreadPoolExecutor(load.SENDERS) as senders:
        sent = [senders.submit(load.run) for _ in range(load.SENDERS)]
        try:
            for settings in kills:
                some = len(load.acknowledged)
                wait_until(lambda more=some: len(load.acknowledged) > more + 200, 120)
                time.sleep(pause_s)
                name = "broker" if settings is broker else "receiver"
                starts = process(settings, name).starts
                kill(process(settings, name))
                wait_until(lambda s=settings, n=name, k=starts: process(s, n).starts > k, 120)
            kafka.wait_ready(broker)
            some = len(load.acknowledged)
            wait_until(lambda: len(load.acknowledged) > some + 200, 120)
        finally:
            load.stop.set()
        for each in sent:
            each.result()
    found = log_of(receiver)
    assert load.odd == []
    assert load.acknowledged - set(found) == set()
    assert set(found) - before - load.acknowledged == set()
    times = [len({h["webhook-received-at"] for h in found[id].headers}) for id in load.acknowledged]
    assert set(times) == {1}
    assert {body for id in load.acknowledged for body in found[id].bodies} == {body_of(9)}
    return load


def test_a_broker_killed_under_load_loses_no_acknowledged_delivery(receiver: Receiver, broker: Settings) -> None:
    """Of 500 a second; each is there once by its id and its time. It takes half a minute: a broker starts again."""
    load = under_load(receiver, broker, [broker], 0.5)
    assert len(load.acknowledged) > 400


def through_outage(receiver: Receiver, broker: Settings, outage_s: float) -> None:
    """Sends while the broker is away, for at least so long, and again once it is back."""
    refused, id = new_id(), new_id()
    began = time.monotonic()
    supervisor.stop_program(broker, "broker")
    try:
        status, reason, headers = post(receiver, body_of(10), refused)
        assert (status, headers["retry-after"]) == (503, "5")
        assert reason["detail"] == "The log did not take the delivery in time. Send it again."
        while time.monotonic() - began < outage_s:
            assert post(receiver, body_of(10), id)[0] == 503
    finally:
        supervisor.start_program(broker, "broker")
        kafka.wait_ready(broker)
    wait_until(lambda: [post(receiver, body_of(10), each)[0] for each in (refused, id)] == [202, 202], 120)
    found = log_of(receiver)
    for each in (refused, id):
        assert len({headers["webhook-received-at"] for headers in found[each].headers}) == 1


def test_without_a_broker_a_sender_is_asked_to_come_again(receiver: Receiver, broker: Settings) -> None:
    through_outage(receiver, broker, 0)


@pytest.mark.prove
def test_an_outage_longer_than_the_producer_tries_is_survived(receiver: Receiver, broker: Settings) -> None:
    """The producer gives records up after 35 s, and its sequence of numbers with them; it takes a minute."""
    through_outage(receiver, broker, 45)


@pytest.mark.prove
def test_brokers_and_receivers_killed_under_load_lose_no_delivery(receiver: Receiver, broker: Settings) -> None:
    """Both, three times, in turns, with some load between; minutes."""
    load = under_load(receiver, broker, [receiver.settings, broker] * 3, 3.0)
    assert load.answers[0] > 0
    assert len(load.acknowledged) > 1_400


@pytest.mark.fuzz
@pytest.mark.skipif(not shutil.which("npm"), reason="no npm, which fetches the examples")
def test_every_published_example_is_in_the_log_as_github_signs_it(receiver: Receiver, tmp_path: Path) -> None:
    """Signed by Octokit's own code; each is an event with its kind."""
    found = examples(tmp_path)
    bodies = [json.dumps(payload, ensure_ascii=False, indent=2) for _, payload in found]
    connection = receiver.connection()
    for number, signature in enumerate(signatures(tmp_path, SECRET, bodies)):
        head = {"x-hub-signature-256": signature, "x-github-delivery": f"e{number}", "x-github-event": found[number][0]}
        connection.request("POST", "/hub/examples", bodies[number].encode(), {**JSON, **head})
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (202, {"id": f"e{number}"})
    connection.close()
    log = log_of(receiver, "hub.examples")
    assert len(found) == len(log) == 329
    assert [log[f"e{number}"].bodies for number in range(329)] == [[body.encode()] for body in bodies]
    kinds = {name: [h["x-github-event"].decode() for h in one.headers] for name, one in log.items()}
    assert kinds == {f"e{number}": [kind] for number, (kind, _) in enumerate(found)}
    raw = pa.table(
        {
            "partition": pa.array([0] * 329, pa.int32()),
            "offset": pa.array(range(329), pa.int64()),
            "timestamp": pa.array([datetime.now(UTC)] * 329, pa.timestamp("us", tz="UTC")),
            "key": pa.array([one.keys[0] for one in log.values()]),
            "value": pa.array([one.bodies[0] for one in log.values()]),
            HEADERS: pa.array(
                [[{"key": k, "value": v} for k, v in one.headers[0].items()] for one in log.values()], HEADERS_TYPE
            ),
        }
    )
    decoded = Decoder(receiver.registry.topics["hub.examples"]).decode(raw, None)
    assert decoded.rejected["reasons"].to_pylist() == []
    assert sorted(decoded.accepted["webhook_id"].to_pylist()) == sorted(log)
