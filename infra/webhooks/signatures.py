"""Signs webhooks by Standard Webhooks, and checks signatures, also those that GitHub computes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

Scheme = Literal["standard", "github"]
GITHUB_SIGNATURE = "x-hub-signature-256"
SIGNED_BY: Mapping[Scheme, tuple[str, ...]] = {
    "standard": ("webhook-id", "webhook-timestamp", "webhook-signature"),
    "github": (GITHUB_SIGNATURE,),
}
"""Scheme -> the headers that a signature needs."""


def signed_headers(secrets: Sequence[str], id: str, at_s: float, body: str) -> dict[str, str]:
    """Returns the headers of a webhook that is signed with each of the secrets.

    Args:
        id: the same whenever it is sent again.
        at_s: the time of this try, seconds since 1970.
    """
    from standardwebhooks.webhooks import Webhook

    signed = [Webhook(secret).sign(id, datetime.fromtimestamp(at_s, UTC), body) for secret in secrets]
    return dict(zip(SIGNED_BY["standard"], (id, str(int(at_s)), " ".join(signed)), strict=True))


def signature_fault(scheme: Scheme, secrets: Sequence[str], headers: Mapping[str, str], body: bytes) -> str:
    """Returns why no secret made the signature of these bytes; an empty text if one did.

    Args:
        secrets: the valid ones; several while one is replaced by another.
        headers: by their names in lower case.
    """
    missing = [name for name in SIGNED_BY[scheme] if not headers.get(name)]
    if missing:
        return f"the header {missing[0]} is missing"
    fault = "there is no secret"
    for secret in secrets:
        fault = _FAULTS[scheme](secret, headers, body)
        if not fault:
            return ""
    return fault


def secret_fault(scheme: Scheme, secret: str) -> str:
    """Returns why a text cannot be a secret of the scheme; an empty text if it can."""
    from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

    try:
        if scheme == "standard":
            Webhook(secret)
    except (ValueError, EmptyWebhookSecretError):
        return "expected base64, mostly with whsec_ before it"
    return "" if secret else "it is empty"


def _standard_fault(secret: str, headers: Mapping[str, str], body: bytes) -> str:
    from standardwebhooks.webhooks import Webhook, WebhookVerificationError

    if unusable := secret_fault("standard", secret):
        return f"the secret cannot be used: {unusable}"
    try:
        # Its headers are of the type dict.
        Webhook(secret).verify(body, dict(headers), json_parse=False)
    except WebhookVerificationError as error:
        return str(error)[:1].lower() + str(error)[1:]
    except ValueError:
        return "the signature is malformed"
    return ""


def _github_fault(secret: str, headers: Mapping[str, str], body: bytes) -> str:
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    # As bytes: texts with letters beyond ASCII cannot be compared in constant time.
    is_right = hmac.compare_digest(expected.encode(), headers[GITHUB_SIGNATURE].encode())
    return "" if is_right else "no matching signature found"


_FAULTS: Mapping[Scheme, Callable[[str, Mapping[str, str], bytes], str]] = {
    "standard": _standard_fault,
    "github": _github_fault,
}
