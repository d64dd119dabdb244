"""Stores the state of an output in a file that status reads, so that no one waits for a database."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.features.outputs.position import Position
from twofold.infra.atomic_write import write_atomically
from twofold.infra.private_file import private_folder

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings


@dataclass(frozen=True, kw_only=True)
class OutputState:
    """An output after its last step.

    Attributes:
        version: of the table, that the copy shows; None: it is not known, or nothing was sent yet.
        page, pages: how many pages of the way to a newer version are there, and of how many; 0 of 0: no such way.
        rows: how many the last step changed that changed some.
        sent_at: when that was.
        waiting: changes that its receiver does not have yet.
        error: why it does not go on; empty while it does.
        failed_at: when it last failed with that error.
        tried_since: when the first of the changes was first tried that its receiver does not take, which is the error.
    """

    version: int | None = None
    page: int = 0
    pages: int = 0
    rows: int = 0
    sent_at: datetime | None = None
    waiting: int = 0
    error: str = ""
    failed_at: datetime | None = None
    tried_since: datetime | None = None


class StateFile:
    """The stored state of an output.

    Args:
        output: its name.
        of_queue: the state of what sends the changes that wait, which goes on by itself.
    """

    def __init__(self, settings: Settings, table: str, output: str, *, of_queue: bool = False) -> None:
        self._file: Path = settings.home / "outputs" / f"{table}.{output}{'.queue' if of_queue else ''}.json"
        self._lock = threading.Lock()

    def read(self) -> OutputState:
        if not self._file.exists():
            return OutputState()
        values: dict[str, Any] = json.loads(self._file.read_text("utf-8"))
        for name in ("sent_at", "failed_at", "tried_since"):
            values[name] = datetime.fromisoformat(values[name]) if values.get(name) else None
        return OutputState(**values)

    def known(self) -> str:
        return self.read().error

    def note(self, error: Exception | None) -> None:
        if error is not None or self.known():
            failed_at = None if error is None else datetime.now(UTC)
            text = "" if error is None else str(error)
            self._update({"error": text, "failed_at": failed_at, "tried_since": None})

    def note_waiting(self, number: int, answer: str, since: float | None) -> None:
        """Records how many changes wait, why the receiver does not take one of them, and since when in epoch s."""
        tried_since = None if since is None else datetime.fromtimestamp(since, UTC)
        self._update({"waiting": number, "error": answer, "tried_since": tried_since})

    def note_position(self, position: Position | None, rows: int = 0) -> None:
        """Records where the copy is, and how many rows the step changed that led there."""
        values: dict[str, Any] = {"version": None, "page": 0, "pages": 0}
        if position is not None:
            is_on_its_way = position.heading is not None
            if position.table_id and position.version >= 0:
                values["version"] = position.version
            if is_on_its_way:
                values |= {"page": position.page, "pages": position.pages}
        if rows:
            values |= {"rows": rows, "sent_at": datetime.now(UTC)}
        self._update(values)

    def _update(self, values: Mapping[str, Any]) -> None:
        with self._lock:
            before = self.read()
            after = replace(before, **values)
            if after != before:
                private_folder(self._file.parent)
                text = json.dumps(asdict(after), default=lambda at: at.isoformat())
                write_atomically(self._file, text, lasting=False)
