"""Outputs of small tables, moved on by what moves them in the real process, which ends between any two writes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from twofold.features.outputs import next_step as reading
from twofold.features.outputs.follow import runner
from twofold.features.outputs.follow.output_state import StateFile
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.output_target import Target
from twofold.features.outputs.targets import webhook_queue
from twofold.features.outputs.targets.revealed_bodies import revealed_bodies
from twofold.features.outputs.targets.webhook_queue import WebhookQueue
from twofold.features.outputs.tests.killed_steps import killed_after
from twofold.infra.delta.history import History
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.output import Output
from twofold.tables.declare.table import Table
from twofold.tables.output_view import KEY
from twofold.tables.refresh.json_values import to_plain_json

WRITES: list[tuple[Any, str]] = [
    (webhook_queue, "_position"),
    (webhook_queue, "_body"),
    (WebhookQueue, "accept"),
    (StateFile, "note_position"),
    (History, "note"),
]
"""What a webhook calls before each of its writes, and after the last."""
Row = Mapping[str, Any]


@dataclass
class MovedOutput:
    """An output with its copy; changes of a queue arrive at a receiver.

    Attributes:
        lake: of a platform that has the output's destination.
        page: the most rows of its step if it can be read; one that cannot has no other way than by commits.
        writes: what it calls before each of its writes, and after the last.
        arrived: id and change of each request that the receiver has got.
        shows: the rows of its copy.
    """

    lake: Lake
    table: Table
    output: Output
    page: int = 3
    writes: Sequence[tuple[Any, str]] = tuple(WRITES)
    arrived: list[tuple[str, Row]] = field(default_factory=list)
    shows: Callable[[MovedOutput], list[Row]] = lambda moved: called(moved)

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

    def move(self, most: int = -1, writes: int | None = None) -> list[str]:
        """Take some steps, or all; the process may end before the write after so many, and starts again.

        Returns the writes that there were until then. A queue begins with all its rows at once: no history is trimmed
        in the ten minutes after a first step.
        """
        if not self.output.is_read and self.target.position() is None:
            self._move(-1)
        elif writes is None:
            self._move(most)
        else:
            with killed_after(writes, self.writes) as ran:
                self._move(most)
            self.start()
            return ran
        return []

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
            self.arrived += [(change.id, json.loads(body)) for change, body in zip(due, bodies, strict=True)]
            queue.accept(due)

    def rows(self) -> list[str]:
        """The rows that the copy shows, each as JSON."""
        return as_json(self.shows(self))


def called(moved: MovedOutput) -> list[Row]:
    """The rows of a receiver that counts each id once, which is always of the same change."""
    moved._receive()
    counted: dict[str, Row] = {}
    for id, change in moved.arrived:
        assert counted.setdefault(id, change) == change or moved.output.reveal
    return replayed(counted.values())


def replayed(changes: Iterable[Row]) -> list[Row]:
    """The rows that changes make, the earlier ones first; none is missing, none is there twice."""
    rows: dict[str, Row | None] = {}
    for change in changes:
        key = json.dumps(change["key"])
        assert (rows.get(key) is None) == (change["before"] is None), change
        rows[key] = change["after"]
    return [row for row in rows.values() if row is not None]


def without_key(rows: Iterable[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != KEY} for row in rows]


def as_json(rows: Iterable[Row]) -> list[str]:
    """Rows as JSON, in order."""
    return sorted(json.dumps(to_plain_json(row), sort_keys=True) for row in rows)
