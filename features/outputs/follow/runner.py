"""The process that moves outputs on: a thread for each, so that what one waits for delays no other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from twofold.features.outputs.follow.output_state import StateFile
from twofold.features.outputs.next_step import next_step
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.revealed_places import Place, note_revealed
from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ProcessFailed, WriteConflict
from twofold.infra.process.file_locks import exclusive
from twofold.infra.process.kept_running import KeptRunning, stop_on_signal
from twofold.infra.process.polling_thread import PollingThread
from twofold.tables.declare.output import Output
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table

if TYPE_CHECKING:
    from twofold.features.outputs.output_target import Target
    from twofold.features.outputs.position import Position
    from twofold.infra.project.settings import Settings

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
        kept = [thread for table, output in registry.outputs() for thread in _kept(lake, table, output)]
        while not stop.wait(_LOOK_S):
            for thread in kept:
                thread.keep()
        for thread in kept:
            thread.stop()


def _kept(lake: Lake, table: Table, output: Output) -> Iterator[KeptRunning]:
    place = Place.declared(table, output)
    for step in output.steps:
        state = StateFile(lake.settings, place.table, place.output, of_queue=step != output.steps[0])
        start = partial(_start, step, lake, table, output, state)
        yield KeptRunning(f"{place}, {step.partition(':')[2]}", start, None, state)


def _start(step: str, lake: Lake, table: Table, output: Output, state: StateFile) -> PollingThread:
    return PollingThread(
        f"output {table.full_name}", resolve_name(step)(lake, table, output, state).step, idle_s=_IDLE_S
    )


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
