"""Chores of webhooks: changes that their receivers have refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from twofold.batch.chores.doomed import MONTH, Doomed
from twofold.features.outputs.revealed_places import Place
from twofold.features.outputs.targets.webhook_output import WebhookOutput
from twofold.features.outputs.targets.webhook_queue import WebhookQueue
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.registry import Registry


def refused_bodies(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds changes that receivers of webhooks refused a month ago; `outputs retry` sends them until then."""
    for table, output in registry.outputs():
        if not isinstance(output, WebhookOutput):
            continue
        queue, since = WebhookQueue(lake, Place.declared(table, output), output), (now - MONTH).timestamp()
        number, size = queue.refused_before(since) if queue.file.exists() else (0, 0)
        if number:
            why = f"{number:,} changes that its receiver refused a month ago"
            yield Doomed(what=f"outputs/{queue.file.name}", bytes=size, why=why, remove=partial(queue.forget, since))
