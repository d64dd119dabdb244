"""Shows what else a domain's data can do: call a receiver, be handed to workers, forget a person."""

from __future__ import annotations

import base64
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from twofold.demo.traffic.sources import FOLLOWED
from twofold.features.analysts.sql_query import Analyst
from twofold.features.outputs.next_step import next_step
from twofold.features.outputs.revealed_places import Place
from twofold.features.outputs.targets.webhook_output import to_webhook
from twofold.features.outputs.targets.webhook_sender import WebhookSender
from twofold.features.work_queue.work_queue import WorkQueue
from twofold.features.work_queue.work_queue import count as state_of_queue
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ProcessFailed
from twofold.infra.kafka.topic_admin import offsets
from twofold.infra.process.ports import HOST
from twofold.infra.process.twofold_command import PROGRAM
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold_algebra.sql.names import DUCKDB

Count = Callable[[int, int], None]
NAME = "demo"
"""Of the output and of the queue."""
WORKERS = 4
PATIENCE_S = 120.0
_DONE = 'echo "$RECORD_PARTITION $RECORD_OFFSET" >> "$0"'


@dataclass(frozen=True, kw_only=True)
class Followed:
    """The records or rows that a follower got.

    Attributes:
        what: happened, in words.
        wanted: what it should get: rows of the table, or records of the log.
        got: different ones that it got.
    """

    what: str
    wanted: int
    got: int

    @property
    def is_right(self) -> bool:
        return self.wanted == self.got


@dataclass
class _Receiver:
    """The ids of changes whose signature was right; every third change is first answered by an error, as if busy."""

    secret: str
    ids: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    def status(self, headers: dict[str, str], body: bytes) -> int:
        from standardwebhooks.webhooks import Webhook, WebhookVerificationError

        id = headers["webhook-id"]
        if id not in self.seen:
            self.seen.add(id)
            if len(self.seen) % 3 == 0:
                return 500
        try:
            Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError:
            return 401
        self.ids.add(id)
        return 204


def call_receiver(settings: Settings, table: Table, count: Count) -> Followed:
    """Sends all rows of a table, as a new webhook that begins with them, to a receiver in this process.

    Args:
        count: called with the number of rows that have arrived, and of all.

    Raises:
        ProcessFailed: some did not arrive in time.
    """
    output = to_webhook(NAME, begin="all")
    receiver = _Receiver("whsec_" + base64.b64encode(secrets.token_bytes(32)).decode())
    with _receiving(receiver) as url:
        file = settings.home / "run" / f"{NAME}-destinations"
        file.touch(mode=0o600)
        file.write_text(f"{NAME} = {url} {receiver.secret}\n")
        lake = Lake(replace(settings, destinations=str(file), webhook_networks=f"{HOST}/32"))
        sender = WebhookSender(lake, Place.declared(table, output), output)
        queue = sender.queue
        queue.file.unlink(missing_ok=True)
        wanted = lake.rows(table.full_name)

        def is_sent() -> bool:
            step = next_step(lake, table, output, queue.position(), queue)
            if step is not None:
                queue.send(step.changes, step.before, step.after)
            while sender.step(time.time()):
                count(len(receiver.ids), wanted)
            return step is None and queue.waiting()[0] == 0

        _wait(is_sent, f"calls for the rows of {table.full_name}")
    what = f"rows of {table.full_name} called a receiver, each once"
    return Followed(what=what, wanted=wanted, got=len(receiver.ids))


def hand_to_workers(settings: Settings, topic: str, count: Count) -> Followed:
    """Has each record of a topic done by one of some workers, which note it; those of an earlier demo are done already.

    Args:
        count: called with the number of records that are done, and of all.

    Raises:
        ProcessFailed: some were not done in time.
    """
    done = settings.home / "run" / f"{NAME}-{topic}.done"
    command = [*PROGRAM, "work", topic, "--name", NAME, "--workers", str(WORKERS), "--"]
    queue = WorkQueue(topic=topic, name=NAME)
    wanted = sum(bounds.latest - bounds.earliest for bounds in offsets(settings, [topic])[topic].values())
    process = subprocess.Popen(
        [*command, "sh", "-c", _DONE, str(done)],
        env={**os.environ, **settings.environment()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def is_done() -> bool:
            if process.poll() is not None:
                raise ProcessFailed(f"`{' '.join(command[1:-1])}` ended with {process.returncode}.")
            state = state_of_queue(settings, queue)
            count(wanted - state.waiting - state.begun, wanted)
            return state.waiting == state.begun == 0

        _wait(is_done, f"workers of {topic}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return Followed(
        what=f"records of {topic} were done by {WORKERS} workers", wanted=wanted, got=len(set(_lines(done)))
    )


def forget_person(settings: Settings, registry: Registry, topic: str, kind: str) -> Followed:
    """Forgets the first person of a topic, and counts the rows whose values of the person cannot be read any more."""
    from twofold.features.persons.certificate import certify
    from twofold.features.persons.keys.key_store import KeyStore, Person

    lake = Lake(settings)
    [[id]] = Analyst(lake).rows(f"SELECT min({kind}) FROM {topic}")
    person = Person(kind, str(id))
    with closing(KeyStore(settings)) as store:
        store.forget(person, time.time_ns() // 1_000_000)
        state = store.state_of(person)
        assert state is not None
        places = certify(lake, registry, store, store.ref(person), state).found
    rows, readable = sum(held.rows for held in places), sum(held.readable or 0 for held in places)
    what = f"rows with values of the {kind} {id}, now forgotten, cannot be read"
    return Followed(what=what, wanted=rows, got=rows - readable)


def not_forgotten(settings: Settings, analyst: Analyst, domain: str) -> str:
    """Writes the SQL condition that a row of persons is of none whom an earlier demo forgot.

    The platform keeps no value that only a destroyed key could read, while the database and the source have it.
    """
    from twofold.features.persons.keys.key_store import KeyStore, Person

    if domain not in FOLLOWED:
        return "true"
    _, _, topic, kind = FOLLOWED[domain]
    with closing(KeyStore(settings)) as store:
        ids = [str(id) for [id] in analyst.rows(f"SELECT DISTINCT {kind} FROM {topic}")]
        forgotten = [id for id in ids if (state := store.state_of(Person(kind, id))) and state.is_forgotten]
    return f"{kind} NOT IN ({DUCKDB.literals(forgotten)})" if forgotten else "true"


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _wait(is_done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_done():
        if time.monotonic() > deadline:
            raise ProcessFailed(f"The {what} have not ended after {PATIENCE_S:.0f} s.")
        time.sleep(0.2)


@contextmanager
def _receiving(receiver: _Receiver) -> Iterator[str]:
    """Yields the URL at which a receiver listens."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(receiver.status(headers, body))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}/{NAME}"
        finally:
            server.shutdown()
            thread.join()
