"""The process that moves outputs on: a thread for each, so that what one waits for delays no other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ProcessFailed, WriteConflict
from twofold.infra.process.file_locks import exclusive
from twofold.infra.process.kept_running import KeptRunning, stop_on_signal
from twofold.infra.process.polling_thread import PollingThread
from twofold.outputs.follow.output_state import StateFile
from twofold.outputs.next_step import next_step
from twofold.outputs.revealed_places import Place, note_revealed
from twofold.outputs.targets.open_target import open_queue, open_sender, open_target
from twofold.tables.declare.outputs.output import Output
from twofold.tables.declare.outputs.webhook_output import WebhookOutput
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings
    from twofold.outputs.output_target import Target
    from twofold.outputs.position import Position

NAME = "outputs"
"""The supervisor's name of the process."""
_LOOK_S = 0.5
_IDLE_S = 1.0
_TRUSTED_S = 10.0
"""For so long the position of a copy is believed to be what it was, while nothing is sent."""


def run(settings: Settings, registry: Registry) -> None:
    """Moves all outputs on until SIGTERM or SIGINT; each then ends its step.

    An output that fails is started again after a pause that doubles up to a minute; the others go on.

    Raises:
        ProcessFailed: another process of this home does it.
    """
    stop = stop_on_signal()
    # To ask whether a lock is held takes it for a moment.
    with exclusive(settings.home / "run" / f"{NAME}.lock", patience_s=1.0) as ours:
        if not ours:
            raise ProcessFailed(
                f"Another process moves the outputs of {settings.home}.", hint=f"`{COMMAND} status` shows it."
            )
        lake = Lake(settings)
        for table, output in registry.outputs():
            if output.reveal:  # a copy that is older than the ledger is in it from here on
                note_revealed(lake, Place.declared(table, output))
        kept = [keeper for table, output in registry.outputs() for keeper in _kept(lake, table, output)]
        while not stop.wait(_LOOK_S):
            for keeper in kept:
                keeper.keep()
        for keeper in kept:
            keeper.stop()


def _kept(lake: Lake, table: Table, output: Output) -> Iterator[KeptRunning]:
    name = output.name_for(table.name)
    state = StateFile(lake.settings, table.full_name, name)
    yield KeptRunning(f"{table.full_name}: {name}", partial(_start, lake, table, output, state), None, state)
    if isinstance(output, WebhookOutput):
        waiting = StateFile(lake.settings, table.full_name, name, of_queue=True)
        start = partial(_start_sending, lake, table, output, waiting)
        yield KeptRunning(f"{table.full_name}: {name}, sending", start, None, waiting)


def _start(lake: Lake, table: Table, output: Output, state: StateFile) -> PollingThread:
    follower = Follower(lake, table, output, state)
    return PollingThread(f"output {table.full_name}", follower.step, idle_s=_IDLE_S)


def _start_sending(lake: Lake, table: Table, output: WebhookOutput, state: StateFile) -> PollingThread:
    queue, sender = open_queue(lake, table, output), open_sender(lake, table, output)
    noted_at = float("-inf")

    def step() -> bool:
        nonlocal noted_at
        has_sent = sender.step(time.time())
        if not has_sent or time.monotonic() - noted_at > _IDLE_S:  # it counts all that wait
            state.note_waiting(*queue.waiting(), queue.tried_since())
            noted_at = time.monotonic()
        return has_sent

    return PollingThread(f"webhook {table.full_name}", step, idle_s=_IDLE_S)


class Follower:
    """Moves one output on."""

    def __init__(self, lake: Lake, table: Table, output: Output, state: StateFile) -> None:
        self._lake, self._table, self._output, self._state = lake, table, output, state
        self._target: Target | None = None
        self._position: Position | None = None
        self._looked_at = float("-inf")

    def step(self) -> bool:
        """Takes the next step; False if the copy shows the table as it is."""
        target = self._target = self._target or open_target(self._lake, self._table, self._output)
        is_fresh = time.monotonic() - self._looked_at > _TRUSTED_S
        if is_fresh:
            self._position = target.position()
            self._looked_at = time.monotonic()
            self._state.note_position(self._position)
            self._hold()
        if not target.has_room():
            return False
        step = next_step(self._lake, self._table, self._output, self._position, target)
        if step is None:
            return False
        try:
            target.send(step.changes, step.before, step.after)
        except WriteConflict:
            if is_fresh:
                raise
            self._looked_at = float("-inf")  # a person has moved it
            return True
        self._position = step.after
        self._state.note_position(step.after, len(step.changes))
        return True

    def _hold(self) -> None:
        """Says which commits of the table the output still needs, and which rows.

        It needs rows while it goes by pages; and if it reveals values, but cannot be read, always: when a key ends, it
        gets the rows of its version again.
        """
        if self._position is None:
            return
        at = [self._position, *([self._position.heading] if self._position.heading else [])]
        if known := [one.version for one in at if one.version >= 0]:
            holder = f"output {self._output.name_for(self._table.name)}"
            rows = len(at) > 1 or (bool(self._output.reveal) and not self._output.is_read)
            self._lake.history(self._table.full_name).note(holder, min(known), rows=rows)
