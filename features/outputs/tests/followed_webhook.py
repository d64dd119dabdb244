"""A table whose changes go to a receiver on this machine, with a clock of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.infra.webhooks.signed import secret
from twofold import to_webhook
from twofold.features.outputs.commands.resend import resume
from twofold.features.outputs.next_step import Step
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.refused_rows import REFUSED
from twofold.features.outputs.revealed_places import Place
from twofold.features.outputs.targets.webhook_output import WebhookOutput
from twofold.features.outputs.targets.webhook_queue import WebhookQueue
from twofold.features.outputs.targets.webhook_sender import WebhookSender
from twofold.features.outputs.tests.followed_table import FollowedTable
from twofold.features.outputs.tests.webhook_receiver import Receiver
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.output import Output
from twofold.tables.declare.table import Table


def lake_with(lake: Lake, receivers: dict[str, str], networks: str = "127.0.0.0/8", mode: int = 0o600) -> Lake:
    """The lake of a platform that has these lines of destinations."""
    file = Path(lake.settings.home) / "destinations"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{name} = {value}\n" for name, value in receivers.items()))
    file.chmod(mode)
    return Lake(replace(lake.settings, destinations=str(file), webhook_networks=networks))


def queue_of(lake: Lake, table: Table, output: Output) -> WebhookQueue:
    return WebhookQueue(lake, Place.declared(table, output), output)


def sender_of(lake: Lake, table: Table, output: Output) -> WebhookSender:
    return WebhookSender(lake, Place.declared(table, output), output)


@dataclass
class FollowedWebhook:
    """The table `plant.hours`, its queue, and the receiver `hook`.

    Attributes:
        now: seconds since 1970, which only `wait` moves.
    """

    bare: Lake
    receiver: Receiver
    output: WebhookOutput = field(default_factory=lambda: to_webhook("hook"))
    now: float = field(default_factory=time.time)

    @cached_property
    def table(self) -> FollowedTable:
        lake = lake_with(self.bare, {"hook": f"{self.receiver.url} {secret()}"})
        return FollowedTable(lake, self.output)

    @property
    def declared_output(self) -> WebhookOutput:
        assert isinstance(self.table.output, WebhookOutput)
        return self.table.output

    @property
    def queue(self) -> WebhookQueue:
        return queue_of(self.table.lake, self.table.table, self.declared_output)

    @cached_property
    def sender(self) -> WebhookSender:
        return sender_of(self.table.lake, self.table.table, self.declared_output)

    def follow(self) -> list[Step]:
        """Queue all changes of the table."""
        queue = open_target(self.table.lake, self.table.table, self.table.output)
        return self.table.follow(queue)

    def resume(self, version: int | None) -> int:
        """Have what comes after a version queued next."""
        return resume(self.queue, self.table.lake, self.table.table, self.table.output, version)

    def send(self) -> None:
        """Send what is due now."""
        while self.sender.step(self.now):
            pass

    def wait(self, seconds: float) -> None:
        """Let time pass, and send whatever becomes due."""
        end = self.now + seconds
        while self.now < end:
            self.send()
            self.now = min(end, self.now + 1.0 if seconds < 100 else self.now + seconds / 100)
        self.send()

    def run(self) -> list[tuple[str, str, int]]:
        """Queue and send; returns what arrived, briefly."""
        self.follow()
        self.send()
        return self.receiver.take()

    def refused(self) -> list[dict[str, Any]]:
        """The rows of the ledger, without the time."""
        if not self.table.lake.exists(REFUSED):
            return []
        rows = pa.table(self.table.lake.open(REFUSED).scan()).drop_columns(["recorded_at"]).to_pylist()
        return sorted(rows, key=lambda row: (row["key"], row["version"]))
