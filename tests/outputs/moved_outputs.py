"""Outputs of small tables, moved on by what moves them in the real process, which ends between any two writes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from tests.outputs.killed_steps import killed_after
from twofold.features.search import search_index
from twofold.features.search.search_index import SearchIndex
from twofold.infra.delta.history import History
from twofold.infra.delta.lake import Lake
from twofold.outputs import next_step as reading
from twofold.outputs.follow import runner
from twofold.outputs.follow.output_state import StateFile
from twofold.outputs.output_target import Target
from twofold.outputs.targets import webhook_queue
from twofold.outputs.targets.open_target import open_target
from twofold.outputs.targets.revealed_bodies import revealed_bodies
from twofold.outputs.targets.webhook_queue import WebhookQueue
from twofold.outputs.view import KEY
from twofold.tables.declare.outputs.output import Output
from twofold.tables.declare.table import Table
from twofold.tables.refresh.json_values import to_plain_json

WRITES: list[tuple[Any, str]] = [
    (search_index, "write_atomically"),
    (SearchIndex, "_change"),
    (SearchIndex, "_document"),
    (shutil, "rmtree"),
    (webhook_queue, "_position"),
    (webhook_queue, "_body"),
    (WebhookQueue, "accept"),
    (StateFile, "note_position"),
    (History, "note"),
]
"""What an output calls before each of its writes, and after the last."""


@dataclass
class MovedOutput:
    """An output with its copy: an index in the home; or what a receiver has by the changes of a queue.

    Attributes:
        lake: of a platform that has the output's destination.
        page: the most rows of its step if it can be read; one that cannot has no other way than by commits.
        received: key -> the row by the last change that the receiver has got; None: it is deleted.
    """

    lake: Lake
    table: Table
    output: Output
    page: int = 3
    received: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start()

    @property
    def name(self) -> str:
        return self.output.name_for(self.table.name)

    @property
    def target(self) -> Target:
        return open_target(self.lake, self.table, self.output)

    def start(self) -> None:
        """Go on from what the copy says, as a new process does."""
        state = StateFile(self.lake.settings, self.table.full_name, self.name)
        self._follower = runner.Follower(self.lake, self.table, self.output, state)

    def move(self, most: int = -1, writes: int | None = None) -> None:
        """Take some steps, or all; the process may end before the write after so many, and starts again.

        A queue begins with all its rows at once: no history is trimmed in the ten minutes after a first step.
        """
        if not self.output.is_read and self.target.position() is None:
            self._move(-1)
        elif writes is None:
            self._move(most)
        else:
            with killed_after(writes, WRITES):
                self._move(most)
            self.start()

    def _move(self, most: int) -> None:
        page = self.page if self.output.is_read else reading.MOST_ROWS
        with patch.object(reading, "MOST_ROWS", page), patch.object(runner, "_TRUSTED_S", -1.0):
            while most and self._follower.step():
                most -= 1
                self._receive()
            self._receive()

    def _receive(self) -> None:
        """The receiver gets all that is due, and says so after it has kept it."""
        queue = self.target
        if not isinstance(queue, WebhookQueue):
            return
        while due := queue.due(time.time(), 100):
            bodies = [change.body for change in due]
            if self.output.reveal:
                bodies = revealed_bodies(self.lake.settings, self.name, self.output.reveal, bodies)
            for change, body in zip(due, bodies, strict=True):
                self.received[change.key] = json.loads(body)["after"]
            queue.accept(due)

    def rows(self) -> list[str]:
        """The rows that the copy shows, each as JSON."""
        index = self.target
        if isinstance(index, SearchIndex):
            return as_json({c: value for c, value in row.items() if c != KEY} for row in index._stored())
        return as_json(row for row in self.received.values() if row is not None)


def as_json(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows as JSON, in order."""
    return sorted(json.dumps(to_plain_json(row), sort_keys=True) for row in rows)
