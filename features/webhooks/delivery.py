"""Deliveries of webhooks: what is accepted, and the record that it becomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message

from starlette.exceptions import HTTPException

from twofold.features.webhooks.webhook_topic import WebhookTopic
from twofold.infra.webhooks.delivery_headers import EVENT_TYPE, ID, MOST_BYTES, RECEIVED
from twofold.infra.webhooks.signatures import GITHUB_SIGNATURE, signature_fault

RawHeaders = Sequence[tuple[bytes, bytes]]
LONGEST_ID = 200
"""Letters of a delivery's id, or of the type of its event."""
_IDS = {"standard": (ID,), "github": ("x-github-delivery", "idempotency-key")}
"""Scheme -> the headers that may identify a delivery, by precedence; of Standard Webhooks the one that is signed."""
_SINGLE = (
    *("content-type", "content-encoding", "webhook-timestamp", "webhook-signature"),
    *(ID, GITHUB_SIGNATURE, EVENT_TYPE, "x-github-delivery", "idempotency-key"),
)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A delivery that was accepted.

    Attributes:
        topic: full name.
        id: the same when it is sent again.
        body: as it was signed.
        event_type: as GitHub has it in a header.
        received_at: by the clock of this machine.
        is_dated_here: its event time is the one at which the first delivery of this id was received.
    """

    topic: str
    id: str
    body: bytes
    event_type: str | None
    received_at: datetime
    is_dated_here: bool

    def record_headers(self, first_received_at: datetime | None) -> list[tuple[str, bytes]]:
        """Returns the headers of the record.

        Args:
            first_received_at: of the first delivery of this id; None if the body says its time.
        """
        headers = [(ID, self.id.encode())]
        if self.event_type is not None:
            headers.append((EVENT_TYPE, self.event_type.encode()))
        if first_received_at is not None:
            headers.append((RECEIVED, first_received_at.astimezone(UTC).isoformat(timespec="microseconds").encode()))
        return headers


def require_acceptable(raw: RawHeaders) -> Mapping[str, str]:
    """Checks headers before the body is read, and returns them by their names in lower case.

    Raises:
        HTTPException: 400, 413 or 415, with the reason.
    """
    names = Counter(name.decode("latin-1").lower() for name, _ in raw)
    twice = [name for name in _SINGLE if names[name] > 1]
    if twice:
        raise HTTPException(400, f"The header {twice[0]} is there {names[twice[0]]} times; expected one.")
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
    content = Message()
    content["content-type"] = headers.get("content-type", "")
    kind, charset = content.get_content_type(), content.get_content_charset("utf-8")
    is_json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    if not headers.get("content-type") or not is_json or charset not in ("utf-8", "us-ascii"):
        raise HTTPException(
            415, f"The content type is {headers.get('content-type', '')!r}; expected application/json in UTF-8."
        )
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, f"The content encoding is {headers['content-encoding']!r}; expected none.")
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length) > MOST_BYTES:
        raise HTTPException(413, f"The body has {length} bytes; expected at most {MOST_BYTES}.")
    return headers


def accept(
    topic: WebhookTopic, secrets: Sequence[str], headers: Mapping[str, str], body: bytes, received_at: datetime
) -> Delivery:
    """Checks the body, its signature and its id.

    Raises:
        HTTPException: 400 or 401, with the reason.
    """
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"Byte {error.start} of the body is not UTF-8, in which JSON is written.") from None
    if not body:
        raise HTTPException(400, "The body is empty; expected a JSON object.")
    fault = signature_fault(topic.scheme, secrets, headers, body)
    if fault:
        raise HTTPException(401, f"The signature is refused: {fault}.")
    name = next((name for name in _IDS[topic.scheme] if name in headers), None)
    if name is None:
        raise HTTPException(400, f"There is no id: expected the header {' or '.join(_IDS[topic.scheme])}.")
    event_type = headers.get(EVENT_TYPE) if topic.scheme == "github" else None
    return Delivery(
        topic=topic.full_name,
        id=_word(name, headers[name]),
        body=body,
        event_type=None if event_type is None else _word(EVENT_TYPE, event_type),
        received_at=received_at,
        is_dated_here=topic.is_dated_by_receiver,
    )


def _word(name: str, value: str) -> str:
    if not 0 < len(value) <= LONGEST_ID or not value.isascii() or not value.isprintable() or " " in value:
        raise HTTPException(
            400, f"The header {name} is {value[:LONGEST_ID]!a}; expected 1 to {LONGEST_ID} letters of ASCII, no blanks."
        )
    return value
