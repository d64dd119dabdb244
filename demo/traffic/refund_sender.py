"""Sends refund notices to the shop as its payment provider does: signed webhooks, one of them again, one a forgery."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from twofold.demo.traffic import shop_source
from twofold.infra import COMMAND
from twofold.infra.errors import BadSetting, ProcessFailed
from twofold.infra.process.ports import HOST
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.webhook_secrets import read_secrets

TOPIC = "shop.refund_notices"
NOTICES = 20
TIMEOUT_S = 60


def notices(day: date) -> Iterator[dict[str, Any]]:
    """Yields the notices of a day: about a euro of each of its first accepted payments, a day later."""
    for _, records in shop_source.records(day, day + timedelta(days=1)):
        paid = [r for r in records if isinstance(r, shop_source.Payment) and r.outcome == "accepted"]
        for number, payment in enumerate(paid[:NOTICES]):
            yield {
                "refund_id": f"r{payment.payment_id}",
                "payment_id": payment.payment_id,
                "cents": 100 + number,
                "refunded_at": (payment.at + timedelta(days=1)).isoformat(),
            }


def send(settings: Settings, day: date) -> int:
    """Sends the notices of a day, the first one twice and a forgery of it; returns how many different ones were taken.

    Raises:
        BadSetting: there is no secret to sign with.
        ProcessFailed: the receiver does not answer, or otherwise than it has to.
    """
    secrets = read_secrets(settings.webhook_secrets_file).get(TOPIC)
    if not secrets:
        raise BadSetting(
            f"{settings.webhook_secrets_file} has no secret of {TOPIC}.", hint=f"`{COMMAND} up` makes one."
        )
    sent = [(notice["refund_id"], json.dumps(notice)) for notice in notices(day)]
    connection = http.client.HTTPConnection(HOST, settings.webhook_port, timeout=TIMEOUT_S)
    try:
        statuses = [_post(connection, secrets[-1], id, body, body) for id, body in [*sent, sent[0]]]
        forged = _post(connection, secrets[-1], *sent[0], sent[0][1].replace("100", "999"))
    except (OSError, http.client.HTTPException) as error:
        raise ProcessFailed(
            f"The receiver of webhooks at {settings.receiver_address} does not answer: {error!r}.",
            hint=f"See {settings.logs / 'receiver.log'}.",
        ) from error
    finally:
        connection.close()
    if set(statuses) != {202} or forged != 401:
        raise ProcessFailed(
            f"The receiver answered {sorted(set(statuses))}, and {forged} to a forgery; expected 202 and 401.",
            hint=f"See {settings.logs / 'receiver.log'}.",
        )
    return len(sent)


def _post(connection: http.client.HTTPConnection, secret: str, id: str, signed: str, body: str) -> int:
    """Sends a body with the signature of another, or of the same; returns the status of the answer."""
    from standardwebhooks import Webhook

    now = datetime.now(UTC)
    headers = {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(id, now, signed),
    }
    connection.request("POST", f"/{TOPIC.replace('.', '/')}", body, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status
