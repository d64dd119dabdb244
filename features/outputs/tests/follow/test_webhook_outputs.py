"""Webhooks in the process of outputs: each goes on by itself, and is heard of if its receiver does not take changes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from tests import ROOT
from tests.harness.tiers import this_run
from tests.infra.webhooks.signed import secret
from twofold import to_webhook
from twofold.cli.__main__ import app
from twofold.features.outputs.commands.resend import resume
from twofold.features.outputs.follow import runner, webhook_sending
from twofold.features.outputs.follow.output_state import StateFile
from twofold.features.outputs.refused_rows import REFUSED
from twofold.features.outputs.targets import webhook_queue, webhook_sender
from twofold.features.outputs.tests.follow.test_runner import reports, running, until
from twofold.features.outputs.tests.followed_table import FollowedTable
from twofold.features.outputs.tests.followed_webhook import lake_with, queue_of, sender_of
from twofold.features.outputs.tests.webhook_receiver import OK, Receiver, receiving
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadSetting
from twofold.infra.process import supervisor
from twofold.infra.process.ports import free_port
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table

pytestmark = pytest.mark.platform
KILLS = this_run.kills or 3


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving(Receiver()) as receiver:
        yield receiver


def table_with(followed: FollowedTable, *names: str) -> Table:
    return replace(followed.table, outputs=[to_webhook(name) for name in names])


def test_a_receiver_that_is_down_or_slow_delays_no_other(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_sender, "TIMEOUT_S", 2.0)
    monkeypatch.setattr(supervisor, "state", lambda settings: [SimpleNamespace(name=runner.NAME, pid=1)])
    slow = Receiver(lambda request: time.sleep(30) or OK)  # type: ignore[func-returns-value]
    dead = f"http://127.0.0.1:{free_port()}/token"
    with receiving(slow):
        lines = {
            name: f"{url} {secret()}" for name, url in (("good", receiver.url), ("slow", slow.url), ("dead", dead))
        }
        lake = lake_with(lake, lines)
        followed = FollowedTable(lake)
        table = table_with(followed, "good", "slow", "dead", "gone")
        with running(lake, table):
            until(lambda: all(reports(lake, table)[name].version == 0 for name in lines))
            for number in range(5):
                followed.put(("a", number, None))
            until(lambda: len(receiver.requests) == 5)
            until(lambda: {n for n, r in reports(lake, table).items() if r.error} == {"slow", "dead", "gone"})
            found = reports(lake, table)
            assert (found["good"].state, found["good"].waiting, found["good"].error) == ("shows all", 0, "")
            assert (found["dead"].state, found["dead"].waiting) == ("waits for its receiver", 5)
            assert "5 changes wait: 127.0.0.1 does not answer: ConnectError" in found["dead"].error
            assert "5 changes wait: 127.0.0.1 does not answer: ReadTimeout" in found["slow"].error
            assert "has no destination 'gone'" in found["gone"].error
            assert "token" not in "".join(report.error for report in found.values())
            assert [name for name, report in found.items() if report.has_failed] == ["gone"]
    assert [request.change["version"] for request in receiver.requests] == [1, 2, 3, 4, 5]


def test_a_change_that_is_tried_again_is_no_failure_for_ten_minutes(lake: Lake) -> None:
    """What is not tried again is one at once."""
    table = table_with(FollowedTable(lake), "good")
    state, now = StateFile(lake.settings, table.full_name, "good", of_queue=True), time.time()
    found = {}
    for minutes in (0, 9, 11):
        state.note_waiting(1, "500 Internal Server Error", now - minutes * 60)
        report = reports(lake, table)["good"]
        assert report.error == "1 changes wait: 500 Internal Server Error"
        found[minutes] = report.has_failed
    assert found == {0: False, 9: False, 11: True}
    state.note(BadSetting("there is no destination"))
    assert reports(lake, table)["good"].has_failed
    state.note_waiting(0, "", None)
    assert not reports(lake, table)["good"].has_failed


def test_a_full_queue_holds_the_reader_of_the_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_queue, "MOST_WAITING", 2)
    receiver = Receiver(port=free_port())
    lake = lake_with(lake, {"hook": f"{receiver.url} {secret()}"})
    followed = FollowedTable(lake)
    table = table_with(followed, "hook")
    with running(lake, table):
        until(lambda: reports(lake, table)["hook"].version == 0)
        for number in range(5):
            followed.put(("a", number, None))
        until(lambda: reports(lake, table)["hook"].waiting == 2)
        time.sleep(3)
        found = reports(lake, table)["hook"]
        assert (found.waiting, found.behind) == (2, 3)
        with receiving(receiver):
            until(lambda: len(receiver.requests) == 5)


def test_what_waits_is_counted_once_a_second_while_changes_are_sent(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count reads all that wait: after each eight changes it would take longer than to send them."""
    counts: list[int] = []
    sent, clock = iter([True, True, True, True, False]), iter([0.0, 0.0, 0.5, 0.9, 1.1, 1.1, 1.2])
    queue = SimpleNamespace(
        waiting=lambda: (counts.append(1) or len(counts), ""),  # type: ignore[func-returns-value]
        tried_since=lambda: None,
    )
    sender = SimpleNamespace(queue=queue, step=lambda now: next(sent))
    monkeypatch.setattr(webhook_sending, "WebhookSender", lambda *_: sender)
    monkeypatch.setattr(webhook_sending.time, "monotonic", lambda: next(clock))
    state = StateFile(lake.settings, "plant.hours", "hook", of_queue=True)
    followed = FollowedTable(lake)
    step = webhook_sending.QueueSender(lake, followed.table, to_webhook("hook"), state).step
    assert [(step(), len(counts)) for _ in range(5)] == [(True, 1), (True, 1), (True, 1), (True, 2), (False, 3)]
    assert state.read().waiting == 3


def test_a_webhook_that_stopped_asks_where_to_go_on(lake: Lake, receiver: Receiver) -> None:
    """It is said until a person answers; what had waited is sent meanwhile."""
    receiver.answer = lambda request: (500 if request.change["version"] == 1 else 200, {}, "")
    lake = lake_with(lake, {"hook": f"{receiver.url} {secret()}"})
    followed = FollowedTable(lake)
    table = table_with(followed, "hook")
    output = table.outputs[0]
    with running(lake, table):
        until(lambda: reports(lake, table)["hook"].version == 0)
        followed.put(("a", 1, None))
        until(lambda: receiver.requests)
        followed.create()
        followed.put(("b", 1, None))
        until(lambda: "resend plant.hours --from N" in reports(lake, table)["hook"].error)
        assert reports(lake, table)["hook"].state == "failed"
        assert "./twofold outputs resend plant.hours" in reports(lake, table)["hook"].error
        receiver.answer = lambda request: OK
        resume(queue_of(lake, table, output), lake, table, output, 0)
        until(lambda: {b[0] for b in (r.brief for r in receiver.requests)} == {"a", "b"}, within_s=100)
        until(lambda: reports(lake, table)["hook"].error == "", within_s=100)


def has_counted(receiver: Receiver, wanted: int) -> bool:
    return len(receiver.counted) >= wanted


@pytest.mark.kills
@pytest.mark.timeout(120 + 60 * KILLS)
def test_a_killed_process_calls_once_for_each_change(lake: Lake, receiver: Receiver) -> None:
    """Killed at any moment under load, some answers lost: each id counts once, in order by key."""
    tries = iter(range(10**6))
    receiver.answer = lambda request: None if next(tries) % 7 == 0 else OK
    lake = lake_with(lake, {"hook": f"{receiver.url} {secret()}"})
    followed = FollowedTable(lake)
    table = table_with(followed, "hook")
    environment = {**os.environ, **lake.settings.environment()}
    command = [sys.executable, "-m", "twofold.features.outputs.tests.follow.own_outputs"]
    expected: list[tuple[str, str, int]] = []
    dice = random.Random(this_run.seed)
    for life in range(KILLS):
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        try:
            until(lambda: queue_of(lake, table, table.outputs[0]).position() is not None)
            for _ in range(8):
                version = max(followed.versions) + 1
                followed.put(("a", version, None), (f"k{version}", 1, None))
                kind = "insert" if version == 1 else "update"
                expected += [("a", kind, version), (f"k{version}", "insert", version)]
            wanted = len(expected) if life == KILLS - 1 else len(receiver.counted) + 4
            until(partial(has_counted, receiver, wanted))
            time.sleep(dice.random())
        finally:
            process.kill()
            process.wait()
    counted = receiver.counted
    assert sorted(request.brief for request in counted.values()) == sorted(expected)
    of_a = [request.brief[2] for request in counted.values() if request.brief[0] == "a"]
    assert of_a == sorted(of_a)
    assert len(receiver.requests) > len(counted)
    assert all(counted[request.id].body == request.body for request in receiver.requests)


def test_refused_changes_are_sent_again_by_a_command(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_with(lake, {"hook": f"{receiver.url} {secret()}"})
    followed = FollowedTable(lake)
    table = table_with(followed, "hook")
    queue, sender = queue_of(lake, table, table.outputs[0]), sender_of(lake, table, table.outputs[0])
    followed.output = table.outputs[0]
    followed.follow(queue)
    followed.put(("a", 1, None))
    followed.follow(queue)
    receiver.answer = lambda request: (410, {}, "moved away")
    for second in range(10):
        sender.step(time.time() + second)
    assert lake.rows(REFUSED) == 1
    assert reports(lake, table)["hook"].refused == 1

    def twofold(*words: str) -> str:
        result = CliRunner().invoke(app, words, env={**lake.settings.environment(), "COLUMNS": "200"})
        return f"{result.output}{result.exception}"

    assert "shop.paid_orders has no output to_webhook" in twofold("outputs", "retry", "paid_orders")
    monkeypatch.setattr("twofold.tables.declare.registry.load", lambda: Registry({}, {table.full_name: table}))
    assert "plant.hours: 1 refused changes wait again." in twofold("outputs", "retry", "plant.hours")
    receiver.answer = lambda request: OK
    sender.step(time.time())
    assert queue.waiting() == (0, "")
    assert "what changed after version 0 is sent next" in twofold("outputs", "resend", "plant.hours", "--from", "0")
    assert "up to 1, the newest" in twofold("outputs", "resend", "plant.hours", "--from", "2")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{secret()} {secret()}", "expected a URL that begins with https://"),
        ("ftp://host/x whsec_aaaa", "expected a URL that begins with https://"),
        ("https://host:port/x whsec_aaaa", "expected a URL that begins with https://"),
        ("https://host/token", "its secret is missing"),
        ("https://host/token whsec_a", "its secret cannot be used: expected base64"),
    ],
)
def test_a_destination_that_is_no_receiver_is_refused(lake: Lake, line: str, message: str) -> None:
    lake = lake_with(lake, {"hook": line})
    table = table_with(FollowedTable(lake), "hook")
    with pytest.raises(BadSetting, match=message) as refused:
        queue_of(lake, table, table.outputs[0]).receiver()
    assert "token" not in str(refused.value)
    assert secret() not in str(refused.value)
