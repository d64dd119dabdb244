"""The declarations of topics that the receiver of webhooks fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from twofold.infra.errors import BadDeclaration
from twofold.infra.webhooks.delivery_headers import EVENT_TYPE, ID, MOST_BYTES, RECEIVED_AT, TYPE, WEBHOOK_ID
from twofold.infra.webhooks.signatures import Scheme
from twofold.tables.declare.record_fields import header
from twofold.tables.declare.records.cover import CoveredType
from twofold.tables.declare.records.origin import Origin
from twofold.tables.declare.topic import Topic

if TYPE_CHECKING:
    from twofold.quality.rules import Rule
    from twofold.tables.declare.registry import Registry

WEBHOOK = Origin(
    columns={
        WEBHOOK_ID: "id of the delivery; one that is sent again has the same",
        TYPE: "kind of the event, as the sender names it",
        RECEIVED_AT: "when the first delivery of this id was received",
    },
    # Who got an answer forgets the delivery: there is one broker, and a loss of power empties its page cache.
    configs={"flush.messages": "1"},
)
_DATED_BY_RECEIVER = "twofold.infra.webhooks.delivery_parser:DeliveryParser"


@dataclass(frozen=True, kw_only=True)
class WebhookTopic(Topic):
    """A topic whose records are bodies of webhooks, as `from_webhook` declares it.

    Attributes:
        scheme: how deliveries are signed.
    """

    scheme: Scheme

    @property
    def is_dated_by_receiver(self) -> bool:
        """Whether the receiver says when each delivery happened, since its body does not."""
        return self.event_time == RECEIVED_AT


def from_webhook(
    *,
    scheme: Scheme,
    schema: Mapping[str, str],
    event_time: str | None = None,
    checks: Sequence[Rule] = (),
    unknown_fields: Literal["refuse", "ignore", "keep"] = "keep",
    idle_timeout: str | None = None,
    segment_bytes: int = 16 * 1024 * 1024,
    local_retention: str = "1 day",
) -> WebhookTopic:
    """Declares a topic with the webhooks that others send to `/DOMAIN/TOPIC` of the receiver, which `up` starts.

    A record is the body of a delivery, byte for byte; its key is the delivery's id. A delivery that is sent again has
    the same id, and counts once in tables. An event has the columns of `schema`, then:

    - `webhook_id`: the delivery's id, by the headers `webhook-id`, `X-GitHub-Delivery` or `Idempotency-Key`.
    - `event_type`: with `github`, the header `X-GitHub-Event`; null if there is none.
    - `received_at`: without `event_time`, the time at which the first delivery of this id was received; the event
      time. It is the same for deliveries of this id within three days; one that is sent later is another event.

    Args:
        scheme: of the signatures: `standard` by Standard Webhooks; `github` as GitHub signs, and others after it.
        schema: of the body, a JSON object, as of a topic.
        event_time: the `timestamp` column of the body that says when the fact happened; None: `received_at`.
        checks, unknown_fields, idle_timeout, segment_bytes, local_retention: as of a topic.
    """
    if scheme not in get_args(Scheme):
        raise BadDeclaration(f"scheme={scheme!r}: expected {' or '.join(map(repr, get_args(Scheme)))}.")
    added = {WEBHOOK_ID: header(ID, "string")}
    added |= {TYPE: header(EVENT_TYPE, "string?")} if scheme == "github" else {}
    own: dict[str, str] = {**added, **({RECEIVED_AT: "timestamp"} if event_time is None else {})}
    taken = [column for column in schema if column in {**own, RECEIVED_AT: ""}]
    if taken:
        raise BadDeclaration(
            f"{taken[0]!r} is a column that the receiver of webhooks fills.",
            hint=f'Give the column another name; `field("{taken[0]}", ...)` takes the field of the body.',
        )
    # Encrypted, a value takes a third more for each person that it is of.
    is_sealed = any(isinstance(kind, CoveredType) for kind in schema.values())
    return WebhookTopic(
        origin=WEBHOOK,
        scheme=scheme,
        encoding="json" if event_time else _DATED_BY_RECEIVER,
        schema={**schema, **own},
        event_time=event_time or RECEIVED_AT,
        message_key=WEBHOOK_ID,
        dedup_keys=[WEBHOOK_ID],
        checks=checks,
        unknown_fields=unknown_fields,
        idle_timeout=idle_timeout,
        max_bytes=max(MOST_BYTES, min(2 * MOST_BYTES, segment_bytes // 2)) if is_sealed else MOST_BYTES,
        segment_bytes=segment_bytes,
        local_retention=local_retention,
    )


def webhook_topics(registry: Registry) -> list[WebhookTopic]:
    """Lists the topics that the receiver fills, of the domains of a registry."""
    return [topic for topic in registry.topics.values() if isinstance(topic, WebhookTopic)]
