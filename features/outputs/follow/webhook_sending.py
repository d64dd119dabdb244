"""Sends the changes of a webhook's queue, in a thread of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from twofold.features.outputs.follow.output_state import StateFile
from twofold.features.outputs.revealed_places import Place
from twofold.features.outputs.targets.webhook_sender import WebhookSender
from twofold.infra.delta.lake import Lake

if TYPE_CHECKING:
    from twofold.tables.declare.output import Output
    from twofold.tables.declare.table import Table

_NOTED_S = 1.0
"""As often it counts all that wait, while changes are sent."""


class QueueSender:
    """Sends what is due, and notes what waits."""

    def __init__(self, lake: Lake, table: Table, output: Output, state: StateFile) -> None:
        self._sender, self._state = WebhookSender(lake, Place.declared(table, output), output), state
        self._noted_at = float("-inf")

    def step(self) -> bool:
        """Sends some changes; False if none is due."""
        has_sent = self._sender.step(time.time())
        if not has_sent or time.monotonic() - self._noted_at > _NOTED_S:
            queue = self._sender.queue
            self._state.note_waiting(*queue.waiting(), queue.tried_since())
            self._noted_at = time.monotonic()
        return has_sent
