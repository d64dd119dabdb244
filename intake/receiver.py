"""The supervised receiver of webhooks: `python -m twofold.intake.receiver`."""

from __future__ import annotations

import http.client
import logging
import sys
from collections.abc import Sequence

from twofold.infra.errors import ProcessFailed
from twofold.infra.process.ports import HOST
from twofold.infra.process.readiness import until_answered
from twofold.infra.process.supervisord import Program
from twofold.infra.project.settings import Settings
from twofold.tables.declare.code_fingerprint import digest
from twofold.tables.declare.personal import personal_columns
from twofold.tables.declare.registry import Registry, running
from twofold.tables.declare.sources.webhook_topic import WebhookTopic, webhook_topics
from twofold.tables.declare.topic import Topic

NAME = "receiver"
READY_S = 60.0


def programs(settings: Settings, registry: Registry) -> list[Program]:
    """Returns the receiver's program, which changes with the topics that it fills; none if there is no such topic."""
    topics = webhook_topics(registry)
    if not topics:
        return []
    filled = " ".join(f"{t.full_name}:{t.scheme}:{t.event_time}:{t.max_bytes}:{encryption(t)}" for t in topics)
    return [
        Program(
            name=NAME,
            command=[sys.executable, "-P", "-m", "twofold.intake.receiver"],
            environment={**settings.environment(), "DECLARATIONS": filled},
            stage=1,
            stop_wait_s=40,
        )
    ]


def encryption(topic: Topic) -> str:
    """Hashes what says which values of a record are encrypted; empty if none are."""
    return digest([repr(topic.schema), topic.unknown_fields]) if personal_columns(topic) else ""


def wait_ready(settings: Settings) -> None:
    """Waits until the receiver answers.

    Raises:
        ProcessFailed: it did not within `READY_S`.
    """

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


def main(settings: Settings, topics: Sequence[WebhookTopic]) -> None:
    """Receives webhooks for these topics until it is stopped."""
    from twofold.intake.webhook_server import serve

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    serve(settings, topics)


if __name__ == "__main__":
    _settings = Settings.from_environment()
    main(_settings, webhook_topics(running(_settings)))
