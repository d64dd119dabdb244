"""The supervised receiver of webhooks: `python -m twofold.features.webhooks.receiver`."""

from __future__ import annotations

import http.client
import logging
import sys
from collections.abc import Iterator, Sequence

from twofold.features.webhooks.webhook_topic import WebhookTopic, webhook_topics
from twofold.infra.errors import ProcessFailed
from twofold.infra.process.ports import HOST
from twofold.infra.process.readiness import until_answered
from twofold.infra.process.service import ServerPort, Service, Wait, worker
from twofold.infra.process.supervisord import Program
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.webhook_secrets import add_missing
from twofold.tables.declare.code_fingerprint import covering
from twofold.tables.declare.registry import Registry, running

NAME = "receiver"
READY_S = 60.0


def _programs(settings: Settings, registry: Registry) -> list[Program]:
    """Returns the receiver's program, which changes with the topics that it fills; each of them gets a secret."""
    topics = webhook_topics(registry)
    add_missing(settings, [topic.full_name for topic in topics])
    filled = " ".join(f"{t.full_name}:{t.scheme}:{t.event_time}:{t.max_bytes}:{covering(t)}" for t in topics)
    command = [sys.executable, "-P", "-m", "twofold.features.webhooks.receiver"]
    return [worker(settings, NAME, command, filled, stop_wait_s=40)]


def _ready(settings: Settings, registry: Registry) -> Iterator[Wait]:
    if webhook_topics(registry):
        yield Wait(f"Receiver of webhooks at {settings.receiver_address}", lambda: _wait_ready(settings))


def _addresses(settings: Settings, registry: Registry, _: bool) -> Iterator[tuple[str, str]]:
    if topics := webhook_topics(registry):
        yield "Webhooks", f"{settings.receiver_address}/{topics[0].domain}/{topics[0].name}"
        yield "", f"secrets in {settings.webhook_secrets_file}"


def _wait_ready(settings: Settings) -> None:
    def ask() -> None:
        connection = http.client.HTTPConnection(HOST, settings.webhook_port, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except OSError as error:
            raise ProcessFailed(
                f"The receiver of webhooks at {settings.receiver_address} does not answer: {error}.",
                hint=f"See {settings.logs / f'{NAME}.log'}.",
            ) from None
        finally:
            connection.close()

    until_answered(ask, ProcessFailed, READY_S)


SERVICE = Service[Registry](
    name=NAME,
    stage="workers",
    needed=lambda _, registry: bool(webhook_topics(registry)),
    programs=_programs,
    ready=_ready,
    ports=[ServerPort("webhook_port", "the receiver of webhooks", NAME)],
    addresses=_addresses,
)


def main(settings: Settings, topics: Sequence[WebhookTopic]) -> None:
    """Receives webhooks for these topics until it is stopped."""
    from twofold.features.webhooks.webhook_server import serve

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    serve(settings, topics)


if __name__ == "__main__":
    _settings = Settings.from_environment()
    main(_settings, webhook_topics(running(_settings)))
