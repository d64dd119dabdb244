"""Who still needs old commits of a table, and from where on its history is there.

Both are small files in the folder of the table, which Delta skips: one of each holder, and the floor, which only rises.
A table that is made again begins without them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from twofold.infra.atomic_write import write_atomically
from twofold.infra.process.file_locks import exclusive

REPLACED_IN_CHECKPOINTS = {"delta.deletedFileRetentionDuration": "interval 1 hours"}
"""The property of tables by which a checkpoint forgets replaced files; nothing goes by it but its size."""
_FOLDER = "_history"
_FLOOR = "floor.json"
_NOTED_EVERY_S = 10.0  # an older version is needlessly kept, a newer one is not kept: a note may lag


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A reader of a table, with what it still needs.

    Attributes:
        version: commits from it on, and what they changed.
        rows: also the table as it was at that version.
        at_ms: when the holder last said so, epoch milliseconds.
        pid: of the process with which the hold ends; None: it lasts until its commits are too old.
    """

    version: int
    rows: bool = False
    at_ms: int = 0
    pid: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether its process has ended."""
        return self.pid is not None and not Path(f"/proc/{self.pid}").exists()


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The versions from which on the history of a table is there.

    Attributes:
        changes: commits from it on, and what they changed.
        rows: the table as it was at versions from it on.
        facts: what newer commits do not repeat: key -> `info` of the newest removed commit that has it.
        starts: partition -> the first offset that a removed commit took in.
    """

    changes: int = 0
    rows: int = 0
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)


class History:
    """The history of one table: its holds and its floor."""

    def __init__(self, uri: str) -> None:
        """Opens it; nothing is written before the first note.

        Args:
            uri: of the table; on an object store nothing is noted, and nothing trimmed.
        """
        self._folder, self._is_local = Path(uri) / _FOLDER, "://" not in uri

    def note(self, holder: str, version: int, *, rows: bool = False) -> None:
        """Says what a holder still needs; an older version counts at once, a newer one after some seconds."""
        hold = Hold(version=version, rows=rows, at_ms=time.time_ns() // 1_000_000)
        noted = self._read(self._file(holder))
        if (
            noted is not None
            and noted.version <= version
            and noted.rows >= rows
            and hold.at_ms - noted.at_ms < _NOTED_EVERY_S * 1_000
        ):
            return
        self._write(self._file(holder), asdict(hold))

    def keep_while_running(self, version: int) -> None:
        """Keeps a version, as it is, until this process ends."""
        file = self._file(f"process {os.getpid()}")
        noted = self._read(file)
        if noted is None or noted.version > version:
            self.holds()  # removes those of ended processes
            now_ms = time.time_ns() // 1_000_000
            self._write(file, asdict(Hold(version=version, rows=True, at_ms=now_ms, pid=os.getpid())))

    def trimming(self) -> AbstractContextManager[bool]:
        """Locks the table against other trims; yields whether it is ours."""
        return exclusive(self._folder / "lock") if self._is_local else nullcontext(False)

    def end(self, holder: str) -> None:
        """Removes a hold."""
        self._file(holder).unlink(missing_ok=True)

    def holds(self) -> dict[str, Hold]:
        """Returns all holds, by holder; those of ended processes are removed."""
        holds: dict[str, Hold] = {}
        for file in self._folder.glob("*.hold"):
            hold = self._read(file)
            if hold is not None and hold.is_over:
                file.unlink(missing_ok=True)
            elif hold is not None:
                holds[file.stem] = hold
        return holds

    def floor(self) -> Floor:
        """Returns the floor; that of a table from which nothing was removed is 0."""
        try:
            return Floor(**json.loads((self._folder / _FLOOR).read_bytes()))
        except FileNotFoundError:
            return Floor()

    def edition(self) -> tuple[int, int]:
        """Returns what differs after the floor was raised; it says nothing else."""
        with suppress(FileNotFoundError):
            file = (self._folder / _FLOOR).stat()
            return file.st_mtime_ns, file.st_ino
        return 0, 0

    def raise_floor(self, floor: Floor) -> None:
        """Publishes a floor, before anything below it is removed."""
        self._write(self._folder / _FLOOR, asdict(floor))

    def _file(self, holder: str) -> Path:
        return self._folder / f"{quote(holder, safe=' ')}.hold"

    def _write(self, file: Path, content: Mapping[str, Any]) -> None:
        if not self._is_local:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(content), lasting=file.name == _FLOOR)

    def _read(self, file: Path) -> Hold | None:
        with suppress(FileNotFoundError, ValueError):  # a crash of the machine can empty a note: its holder notes again
            return Hold(**json.loads(file.read_bytes()))
        return None
