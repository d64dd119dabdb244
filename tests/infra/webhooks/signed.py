"""Headers of signed webhooks as the specifications say it, by hmac alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time

KEY = b"k" * 32


def secret(key: bytes = KEY) -> str:
    """A secret of Standard Webhooks."""
    return "whsec_" + base64.b64encode(key).decode()


def standard(body: bytes, *, key: bytes = KEY, at: float | str | None = None, id: str = "m1") -> dict[str, str]:
    """HMAC-SHA256 of `id.timestamp.body`, in base64."""
    stamp = str(int(time.time())) if at is None else str(at)
    mac = hmac.new(key, f"{id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": f"v1,{base64.b64encode(mac).decode()}"}


def github(body: bytes, *, key: str, id: str = "d1") -> dict[str, str]:
    """HMAC-SHA256 of the body, in hex."""
    mac = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
    return {"x-hub-signature-256": f"sha256={mac}", "x-github-delivery": id}
