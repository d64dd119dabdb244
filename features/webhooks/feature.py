"""Webhooks that are received as a feature."""

from __future__ import annotations

from twofold.infra.project.feature import Feature

FEATURE = Feature(
    words={"from_webhook": "twofold.features.webhooks.webhook_topic:from_webhook"},
    services=["twofold.features.webhooks.receiver:SERVICE"],
    checks={"webhooks": "twofold.features.webhooks.secret_check:require_webhook_secrets"},
)
