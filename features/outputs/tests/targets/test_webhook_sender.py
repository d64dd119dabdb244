"""What a receiver answers decides: sent once more, later, or never; one key that fails holds no other."""

from __future__ import annotations

import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.infra.webhooks.signed import KEY, secret, standard
from twofold.features.outputs.targets import webhook_queue, webhook_sender
from twofold.features.outputs.tests.followed_table import key_of
from twofold.features.outputs.tests.followed_webhook import FollowedWebhook, lake_with, sender_of
from twofold.features.outputs.tests.webhook_receiver import OK, Receiver, Request, receiving
from twofold.infra.delta.lake import Lake
from twofold.infra.process.ports import free_port

DAY_S = 24 * 3600.0


@pytest.fixture
def hook(lake: Lake) -> Iterator[FollowedWebhook]:
    with receiving(Receiver()) as receiver:
        hook = FollowedWebhook(lake, receiver)
        hook.follow()
        yield hook


def answering(**status_of: int) -> Callable[[Request], Any]:
    """Answers by key; 200 otherwise."""

    def answer(request: Request) -> Any:
        status = status_of.get(request.change["key"]["k"], 200)
        return status, {}, "it\n is  so" if status != 200 else ""

    return answer


def tries(hook: FollowedWebhook) -> dict[tuple[str, int], int]:
    """Key and version -> the number of requests."""
    return dict(Counter((request.brief[0], request.brief[2]) for request in hook.receiver.requests))


def test_requests_are_signed_as_the_specification_says(hook: FollowedWebhook) -> None:
    hook.table.put(("grüße", 1, None))
    hook.follow()
    hook.send()
    [request] = hook.receiver.requests
    signed = Webhook(secret()).verify(request.body, request.headers)
    assert signed["after"]["k"] == "grüße"
    stamp = request.headers["webhook-timestamp"]
    expected = standard(request.body, key=KEY, at=stamp, id=request.id)
    assert {name: request.headers[name] for name in expected} == expected
    assert request.headers["content-type"] == "application/json"
    with pytest.raises(WebhookVerificationError):
        Webhook(secret(b"o" * 32)).verify(request.body, request.headers)


def test_two_secrets_sign_while_one_replaces_the_other(hook: FollowedWebhook) -> None:
    """The line is read again: nothing has to be restarted."""
    new = secret(b"n" * 32)
    hook.send()
    lake_with(hook.bare, {"hook": f"{hook.receiver.url} {secret()} {new}"})
    hook.table.put(("a", 1, None))
    hook.follow()
    hook.send()
    [request] = hook.receiver.requests
    for one in (secret(), new):
        Webhook(one).verify(request.body, request.headers)


def test_an_answer_that_is_lost_is_asked_for_again_under_the_id(hook: FollowedWebhook) -> None:
    """The receiver had the change, and its connection was cut before the answer."""
    answers = iter([None, OK])
    hook.receiver.answer = lambda request: next(answers)
    hook.table.put(("a", 1, None))
    hook.follow()
    hook.wait(3)
    [first, second] = hook.receiver.requests
    assert (first.id, first.body) == (second.id, second.body)
    assert hook.queue.waiting() == (0, "")
    assert hook.queue.tried_since() is None


def test_a_key_that_fails_for_ever_holds_no_other_key(hook: FollowedWebhook) -> None:
    """It is refused after twenty tries, and the next change of its key is tried."""
    hook.receiver.answer = answering(bad=500)
    hook.table.put(("bad", 1, None), ("good", 1, None))
    hook.table.put(("bad", 2, None), ("good", 2, None))
    hook.follow()
    hook.wait(30)
    assert tries(hook) == {("bad", 1): 5, ("good", 1): 1, ("good", 2): 1}
    assert hook.queue.waiting() == (2, "500 Internal Server Error: it is so")
    first_tried = hook.queue.tried_since()
    assert first_tried is not None
    hook.table.put(("good", 3, None))
    hook.follow()
    hook.wait(1000)
    assert tries(hook)["good", 3] == 1
    assert hook.queue.tried_since() == first_tried
    assert hook.refused() == []
    hook.wait(3 * 3600)
    assert (tries(hook)["bad", 1], tries(hook)["good", 3]) == (20, 1)
    [row] = hook.refused()
    assert row == {
        "table": "plant.hours",
        "output": "hook",
        "key": key_of("bad"),
        "version": 1,
        "reason": "500 Internal Server Error: it is so",
    }
    hook.receiver.answer = answering()
    hook.wait(600)
    assert hook.queue.waiting() == (0, "")
    assert hook.receiver.requests[-1].brief == ("bad", "update", 2)


@pytest.mark.parametrize("status", [400, 404, 410, 307])
def test_a_final_answer_is_refused_after_three_tries(hook: FollowedWebhook, status: int) -> None:
    hook.receiver.answer = answering(bad=status)
    hook.table.put(("bad", 1, None))
    hook.table.put(("bad", 2, None))
    hook.follow()
    hook.wait(20)
    assert tries(hook) == {("bad", 1): 3, ("bad", 2): 3}
    assert [(row["version"], row["reason"][:3]) for row in hook.refused()] == [(1, str(status)), (2, str(status))]
    assert hook.queue.waiting() == (0, "")
    hook.receiver.take()
    hook.receiver.answer = answering()
    assert hook.queue.retry() == 2
    hook.send()
    assert hook.receiver.take() == [("bad", "insert", 1), ("bad", "update", 2)]
    assert hook.queue.retry() == 0


def test_what_is_refused_again_is_in_the_ledger_once(hook: FollowedWebhook) -> None:
    hook.receiver.answer = answering(bad=410)
    hook.table.put(("bad", 1, None))
    hook.follow()
    for _ in range(2):
        hook.wait(10)
        assert hook.queue.retry() == 1
    assert len(hook.refused()) == 1
    assert len(hook.receiver.counted) == 1


def test_what_is_tried_again_goes_before_later_changes(hook: FollowedWebhook) -> None:
    hook.receiver.answer = lambda request: (410 if request.change["version"] == 1 else 500, {}, "")
    hook.table.put(("bad", 1, None))
    hook.table.put(("bad", 2, None))
    hook.follow()
    hook.wait(10)
    hook.queue.retry()
    hook.receiver.answer = answering()
    hook.receiver.take()
    hook.send()
    assert hook.receiver.take() == [("bad", "insert", 1), ("bad", "update", 2)]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("is_date", [True, False])
def test_a_busy_receiver_is_left_alone_as_long_as_it_asks(hook: FollowedWebhook, status: int, is_date: bool) -> None:
    at = format_datetime(datetime.fromtimestamp(hook.now + 120, UTC).replace(microsecond=0) + timedelta(seconds=1))
    hook.receiver.answer = lambda request: (status, {"retry-after": at if is_date else "120"}, "")
    hook.table.put(("a", 1, None))
    hook.run()
    hook.receiver.answer = answering()
    hook.table.put(("b", 1, None))
    hook.follow()
    hook.wait(99)
    assert hook.receiver.take() == []
    hook.wait(30)
    assert sorted(hook.receiver.take()) == [("a", "insert", 1), ("b", "insert", 2)]


@pytest.mark.platform
@pytest.mark.parametrize("status", [425, 500])
def test_a_passing_failure_is_not_refused_before_a_day(hook: FollowedWebhook, status: int) -> None:
    hook.receiver.answer = answering(bad=status)
    hook.table.put(("bad", 1, None))
    hook.follow()
    hook.wait(DAY_S - 3000)
    assert hook.refused() == []
    assert tries(hook)["bad", 1] > 20
    hook.wait(6000)
    assert len(hook.refused()) == 1


def test_a_receiver_that_is_down_gets_all_when_it_is_back(lake: Lake) -> None:
    receiver = Receiver(port=free_port())
    hook = FollowedWebhook(lake, receiver)
    hook.follow()
    hook.table.put(("a", 1, None), ("b", 1, None))
    hook.table.put(("a", 2, None))
    hook.follow()
    hook.wait(60)
    number, why = hook.queue.waiting()
    assert number == 3
    assert "127.0.0.1 does not answer: ConnectError" in why
    with receiving(receiver):
        hook.wait(64)
    assert sorted(receiver.take()) == [("a", "insert", 1), ("a", "update", 2), ("b", "insert", 1)]


def test_a_redirect_is_not_followed(hook: FollowedWebhook) -> None:
    with receiving(Receiver()) as other:
        hook.receiver.answer = lambda request: (307, {"location": other.url}, "")
        hook.table.put(("a", 1, None))
        hook.follow()
        hook.wait(20)
        assert other.requests == []
    assert hook.refused()[0]["reason"] == "307 Temporary Redirect"


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}", "https://localhost:{}/x", "https://[::ffff:127.0.0.1]:{}/"])
def test_a_receiver_of_ones_own_network_gets_nothing(hook: FollowedWebhook, url: str) -> None:
    own = f"{url.format(hook.receiver.port)} {secret()}"
    lake = lake_with(hook.bare, {"hook": own}, networks="10.0.0.0/8")
    hook.sender = sender_of(lake, hook.table.table, hook.declared_output)
    hook.table.put(("a", 1, None))
    assert hook.run() == []
    assert "is in no network of TWOFOLD_WEBHOOK_NETWORKS" in hook.queue.waiting()[1]


def test_the_address_that_was_checked_is_connected_to(hook: FollowedWebhook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer of the name's server would be another one; the receiver sees the name."""
    asked: list[Any] = []
    resolve = socket.getaddrinfo

    def once(host: Any, *rest: Any, **more: Any) -> Any:
        if host == "receiver.example":
            asked.append(host)
            return resolve("127.0.0.1" if len(asked) == 1 else "127.0.0.2", *rest, **more)
        return resolve(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", once)
    lake = lake_with(hook.bare, {"hook": f"http://receiver.example:{hook.receiver.port}/x {secret()}"}, "127.0.0.1/32")
    hook.sender = sender_of(lake, hook.table.table, hook.declared_output)
    hook.table.put(("a", 1, None))
    hook.follow()
    hook.send()
    [request] = hook.receiver.requests
    assert request.headers["host"] == f"receiver.example:{hook.receiver.port}"
    assert asked == ["receiver.example"]
    hook.table.put(("a", 2, None))
    hook.follow()
    hook.send()
    assert len(hook.receiver.requests) == 1
    assert "receiver.example is at 127.0.0.2" in hook.queue.waiting()[1]


def certificate(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """A certificate of this name that is its own authority."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, file = serialization.Encoding.PEM, folder / f"{name}.pem"
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + made.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return file, context


def test_the_certificate_must_be_of_the_name(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Although the connection is made to an address."""
    file, context = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with receiving(Receiver(), context) as receiver:
        hook = FollowedWebhook(lake, receiver)
        hook.follow()
        hook.table.put(("a", 1, None))
        hook.follow()
        for host, number in (("127.0.0.1", 0), ("localhost", 1)):
            own = lake_with(lake, {"hook": f"https://{host}:{receiver.port}/ {secret()}"})
            hook.sender = sender_of(own, hook.table.table, hook.declared_output)
            hook.wait(10)
            assert len(receiver.requests) == number


def test_an_endless_answer_is_cut(hook: FollowedWebhook) -> None:
    hook.receiver.answer = lambda request: (500, {"content-length": str(10**9)}, "x" * 100_000)
    hook.table.put(("a", 1, None))
    hook.follow()
    started = time.monotonic()
    hook.send()
    assert time.monotonic() - started < webhook_sender.TIMEOUT_S / 2
    assert hook.queue.waiting()[1] == f"500 Internal Server Error: {'x' * 300}"


def test_a_change_is_not_lost_when_the_ledger_cannot_be_written(
    hook: FollowedWebhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no space left")

    hook.receiver.answer = answering(bad=410)
    hook.table.put(("bad", 1, None))
    hook.follow()
    with monkeypatch.context() as full:
        full.setattr(webhook_queue, "record_refused", fail)
        with pytest.raises(OSError, match="no space left"):
            hook.wait(10)
    assert hook.queue.waiting()[0] == 1
    hook.wait(10)
    assert hook.queue.waiting() == (0, "")
    assert len(hook.refused()) == 1
