"""Findings of the doctor about declarations, streams and webhooks."""

from __future__ import annotations

from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.process.doctor import Finding
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.webhook_secrets import secrets_fault
from twofold.status.observer import declared_progress
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.sources.webhook_topic import webhook_topics
from twofold.tables.refresh.acceptance import live_unproved, refused


def declarations_finding(lake: Lake, registry: Registry) -> Finding:
    """Looks for faults in the files under tables/."""
    faults = refused(lake, registry).values()
    return Finding(
        name="Declarations",
        ok=not faults,
        found="; ".join([*(f.message for f in faults), *live_unproved(lake, registry).values()]) or "without a fault",
        expected="files that can be loaded",
        hint=next((fault.hint for fault in faults if fault.hint), f"Correct the file, then `{COMMAND} up`."),
    )


def streams_finding(settings: Settings, registry: Registry) -> Finding:
    """Looks for queries that have failed, of all drivers."""
    failed = [f"{p.domain}.{p.query}: {p.error}" for p in declared_progress(settings, registry) if p.error]
    return Finding(
        name="Streams",
        ok=not failed,
        found="; ".join(failed) or "none has failed",
        expected="none has failed",
        hint=f"Each is started again automatically once a minute; `{COMMAND} up` loads a corrected file.",
    )


def webhook_findings(settings: Settings, registry: Registry) -> list[Finding]:
    """Looks for topics of webhooks whose deliveries cannot be checked; nothing if there is no such topic."""
    topics = webhook_topics(registry)
    if not topics:
        return []
    fault = secrets_fault(settings, {topic.full_name: topic.scheme for topic in topics})
    return [
        Finding(
            name="Webhooks",
            ok=not fault,
            found=fault or "none is missing",
            expected="a secret for each topic",
            hint=f"Add `domain.topic = secret` to {settings.webhook_secrets_file}, of mode 600; it is read at once. "
            f"`{COMMAND} up` adds random ones to the file in home.",
        )
    ]
