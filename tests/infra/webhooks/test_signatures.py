"""Signatures of webhooks: what is signed, by whom, when. Expected ones are computed by hmac alone."""

from __future__ import annotations

import base64
import time

import pytest

from tests.infra.webhooks.signed import KEY, github, secret, standard
from twofold.infra.webhooks.signatures import secret_fault, signature_fault

OTHER = b"o" * 32
BODY = '{"grüße": 1, "nul": "\\u0000"}'.encode()


def fault(headers: dict[str, str], body: bytes = BODY, *secrets: str) -> str:
    return signature_fault("standard", secrets or (secret(),), headers, body)


def test_the_vectors_that_the_specifications_publish_are_right() -> None:
    """Of Standard Webhooks' libraries, whose date has passed, and of GitHub's page, which has none."""
    published = standard(
        b'{"test": 2432232314}',
        key=base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        at=1614265330,
        id="msg_p5jXN8AQM9LWM0D4loKWxJek",
    )
    assert published["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    headers = {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    assert signature_fault("github", ["It's a Secret to Everybody"], headers, b"Hello, World!") == ""


def test_what_the_secret_signed_is_accepted_byte_for_byte() -> None:
    assert fault(standard(BODY)) == ""
    assert fault(standard(BODY), BODY + b" ") == "no matching signature found"
    assert fault(standard(BODY, key=OTHER)) == "no matching signature found"
    assert fault({**standard(BODY), "webhook-id": "m2"}) == "no matching signature found"


def test_one_of_several_signatures_and_one_of_several_secrets_suffice() -> None:
    """The sender signs with both secrets while it replaces one, or we accept both."""
    old, new = standard(BODY), standard(BODY, key=OTHER)
    both = {**old, "webhook-signature": f"v1a,AAAA {new['webhook-signature']} {old['webhook-signature']}"}
    assert fault(both) == ""
    assert fault(old, BODY, secret(), secret(OTHER)) == ""
    assert fault(new, BODY, secret(), secret(OTHER)) == ""
    assert fault(old, BODY, secret(OTHER)) == "no matching signature found"


@pytest.mark.parametrize(
    ("moved_s", "reason"), [(-330, "message timestamp too old"), (330, "message timestamp too new")]
)
def test_a_time_more_than_five_minutes_away_is_refused(moved_s: int, reason: str) -> None:
    assert fault(standard(BODY, at=int(time.time()) + moved_s)) == reason
    assert fault(standard(BODY, at=int(time.time()) + moved_s * 9 // 11)) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1,%%%"},
        {"webhook-signature": "v1,ä"},
        {"webhook-signature": ","},
        {"webhook-signature": "v0,AAAA"},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "nan"},
        {"webhook-timestamp": "9" * 400},
    ],
)
def test_a_malformed_header_is_a_fault_not_an_error(changes: dict[str, str]) -> None:
    assert fault({**standard(BODY), **changes}) != ""


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(name: str) -> None:
    headers = standard(BODY)
    del headers[name]
    assert fault(headers) == f"the header {name} is missing"


def test_a_body_that_is_no_text_has_no_standard_signature() -> None:
    assert fault(standard(b"\xff"), b"\xff") == "the signature is malformed"
    assert signature_fault("github", ["s"], github(b"\xff", key="s"), b"\xff") == ""


def test_a_signature_of_github_is_of_the_body_alone() -> None:
    headers = github(BODY, key="s")
    assert signature_fault("github", ["new", "s"], headers, BODY) == ""
    assert signature_fault("github", ["new"], headers, BODY) == "no matching signature found"
    assert signature_fault("github", ["s"], {}, BODY) == "the header x-hub-signature-256 is missing"
    for odd in ("sha256=", "sha1=" + headers["x-hub-signature-256"][7:], "sha256=é"):
        assert signature_fault("github", ["s"], {"x-hub-signature-256": odd}, BODY) == "no matching signature found"


def test_without_a_secret_no_signature_is_right() -> None:
    assert signature_fault("standard", [], standard(BODY), BODY) == "there is no secret"


def test_a_secret_that_cannot_be_one_is_a_fault() -> None:
    assert secret_fault("standard", secret(KEY)) == ""
    assert secret_fault("github", "any words") == ""
    for odd in ("whsec_", "whsec_a", "ü"):
        assert "base64" in secret_fault("standard", odd)
        assert "cannot be used" in fault(standard(BODY), BODY, odd)
