"""Checks that each declared webhook has a secret."""

from __future__ import annotations

from twofold.features.webhooks.webhook_topic import webhook_topics
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.webhook_secrets import require_secrets
from twofold.tables.declare.registry import Registry


def require_webhook_secrets(settings: Settings, registry: Registry) -> None:
    """Refuses topics whose deliveries cannot be checked; see `require_secrets`."""
    require_secrets(settings, {topic.full_name: topic.scheme for topic in webhook_topics(registry)})
