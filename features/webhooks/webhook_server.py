"""The receiver's HTTP interface: `POST /DOMAIN/TOPIC`."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from starlette.requests import ClientDisconnect

from twofold.features.webhooks.bounded_http import RETRY_AFTER_S, BoundedProtocol
from twofold.features.webhooks.delivery import accept, require_acceptable
from twofold.features.webhooks.delivery_log import DeliveryLog
from twofold.features.webhooks.webhook_topic import WebhookTopic
from twofold.infra.errors import BadSetting, BrokerUnreachable
from twofold.infra.process.ports import HOST
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.delivery_headers import MOST_BYTES
from twofold.infra.webhooks.webhook_secrets import Secrets, read_secrets

RATE_PER_S = 2_000
"""Requests a second, and how many more may come at once after a pause."""
FAREWELL_S = 15

log = logging.getLogger(__name__)


def serve(settings: Settings, topics: Sequence[WebhookTopic]) -> None:
    """Receives webhooks until it is stopped."""
    import uvicorn

    configuration = uvicorn.Config(
        application(settings, topics),
        host=HOST,
        port=settings.webhook_port,
        http=BoundedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=FAREWELL_S,
    )
    uvicorn.Server(configuration).run()


def application(settings: Settings, topics: Sequence[WebhookTopic]) -> FastAPI:
    """Returns the application; each answer that is not 202 has a `detail` that says why, as JSON."""
    by_name = {(topic.domain, topic.name): topic for topic in topics}
    secrets = _SecretsFile(settings.webhook_secrets_file)
    deliveries, rate = DeliveryLog(settings, topics), _Rate()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        deliveries.start()
        yield
        deliveries.close(FAREWELL_S)

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)

    @app.post("/{domain}/{name}", status_code=202)
    async def receive(domain: str, name: str, request: Request) -> Mapping[str, str]:
        if not rate.allows():
            raise HTTPException(429, f"More than {RATE_PER_S} requests a second.", _come_again(1))
        topic = by_name.get((domain, name))
        if topic is None:
            raise HTTPException(404, f"No topic {domain}.{name} is declared from_webhook in the domains that run.")
        headers = require_acceptable(request.headers.raw)
        received_at = datetime.now(UTC)
        body = await _whole_body(request)
        delivery = accept(topic, secrets.find(topic.full_name), headers, body, received_at)
        try:
            await deliveries.append(delivery)
        except BrokerUnreachable as error:
            raise HTTPException(503, f"{error.message} Send it again.", _come_again(RETRY_AFTER_S)) from error
        return {"id": delivery.id}

    return app


async def _whole_body(request: Request) -> bytes:
    """Reads a body, in chunks or of a known length.

    Raises:
        HTTPException: 413, as soon as it is too long; 400 if the sender went away, which it does not read.
    """
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                raise HTTPException(413, f"The body has more than {MOST_BYTES} bytes.")
    except ClientDisconnect:
        raise HTTPException(400, "The body is not complete.") from None
    return bytes(body)


def _come_again(after_s: int) -> dict[str, str]:
    return {"Retry-After": str(after_s)}


class _SecretsFile:
    """The secrets of topics, read again whenever their file has changed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read: tuple[object, Secrets] = (None, {})

    def find(self, topic: str) -> Sequence[str]:
        """Returns the secrets of a topic.

        Raises:
            HTTPException: 503: there is none, so that senders come again once there is.
        """
        try:
            state = self._file.stat()
            version = (state.st_mtime_ns, state.st_ino, state.st_size, state.st_mode)
            if self._read[0] != version:
                self._read = (version, read_secrets(self._file))
            if found := self._read[1].get(topic):
                return found
            log.error("%s has no secret in %s", topic, self._file)
        except (OSError, BadSetting) as error:
            log.error("the webhooks' secrets cannot be read: %s", error)
        raise HTTPException(503, f"The receiver has no secret of {topic}.", _come_again(RETRY_AFTER_S))


@dataclass
class _Rate:
    """Counts requests against `RATE_PER_S`: a bucket that holds those of a second.

    Attributes:
        clock: seconds, which never go back.
    """

    clock: Callable[[], float] = time.monotonic
    _left: float = RATE_PER_S
    _at: float = 0.0

    def allows(self) -> bool:
        """Whether one more request is allowed now."""
        now = self.clock()
        self._left = min(RATE_PER_S, self._left + (now - self._at) * RATE_PER_S)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
