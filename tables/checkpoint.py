"""How far the stream of a table has come: its id, and each micro-batch's inputs and watermark."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infra.settings import Settings
    from tables.declaration import Table


@dataclass(frozen=True)
class Splits:
    """Commits that one micro-batch did not take whole: rows of one may be late by others of the same commit."""

    file: Path

    def add(self, source: str, version: int) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps([source, version]) + "\n")

    def of(self, source: str) -> list[int]:
        """The source's versions in the order in which they were noted; one that was tried again stands twice."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [version for name, version in map(json.loads, lines) if name == source]


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint directory of one query, as Structured Streaming writes it, or of a table that follows changes."""

    path: Path

    @classmethod
    def of(cls, settings: Settings, table: Table) -> Checkpoint:
        """The checkpoint of the stream that maintains a table."""
        return cls(settings.checkpoints / table.domain / table.name)

    @property
    def is_new(self) -> bool:
        """No micro-batch was planned with it yet."""
        return not self._batches("offsets") and self.position is None

    @property
    def definition(self) -> str:
        """The fingerprint of the definition that its stream began with; empty where that was not noted."""
        return self._mark.read_text() if self._mark.exists() else ""

    def note_definition(self, fingerprint: str) -> None:
        self._mark.parent.mkdir(parents=True, exist_ok=True)
        self._mark.write_text(fingerprint)

    def set_aside(self) -> None:
        """Keep what is there under another name, so that a new stream begins."""
        aside = self.path.with_name(f"{self.path.name}.{self.definition or 'unknown'}")
        shutil.rmtree(aside, ignore_errors=True)
        self.path.rename(aside)

    @property
    def _mark(self) -> Path:
        return self.path.with_name(f"{self.path.name}.definition")

    @property
    def stream(self) -> str:
        """The id that the query keeps over restarts, and loses with its checkpoint; empty before the first start."""
        metadata = self.path / "metadata"
        return str(json.loads(metadata.read_text())["id"]) if metadata.exists() else ""

    @property
    def position(self) -> tuple[int, list[int]] | None:
        """Of a table that follows changes: the number of its last micro-batch, and the versions that are read next."""
        if not self._position.exists():
            return None
        batch, versions = json.loads(self._position.read_text())
        return batch, versions

    def take(self, batch: int, versions: list[int]) -> None:
        """Note that a table that follows changes has ended a micro-batch; the first gives the stream its id."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.stream:
            (self.path / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        draft = self._position.with_suffix(".draft")
        draft.write_text(json.dumps([batch, versions]))
        draft.replace(self._position)

    @property
    def _position(self) -> Path:
        return self.path / "position"

    @property
    def committed(self) -> int | None:
        """The last micro-batch that ended."""
        return max(self._batches("commits"), default=None)

    def watermark_ms(self, batch: int | None = None) -> int | None:
        """Epoch milliseconds: rows that close before it were closed by that micro-batch, or by the last one that ended.

        Spark writes 0 before it has seen an event; that is None here.
        """
        number = self.committed if batch is None else batch
        lines = self._lines("offsets", number)
        return int(json.loads(lines[1])["batchWatermarkMs"]) or None if lines else None

    def sources(self, batch: int) -> list[Any]:
        """The end offsets of a micro-batch, one JSON value per source; empty when the batch is unknown."""
        return [json.loads(line) if line != "-" else None for line in self._lines("offsets", batch)[2:]]

    def next_versions(self, batch: int | None = None) -> list[int]:
        """Of each Delta source the version that is read next, after a micro-batch or after the last one that ended."""
        if batch is None and self.position is not None:
            return self.position[1]
        number = self.committed if batch is None else batch
        ends = [] if number is None else self.sources(number)
        # A change data feed that ends with a version may say so by the index of its last file, not by the next version.
        return [0 if end is None else int(end["reservoirVersion"]) + (end["index"] >= 0) for end in ends]

    def split_versions(self, batch: int) -> list[int | None]:
        """Of each Delta source that is no change data feed the version that a micro-batch read in part, else None."""
        return [int(end["reservoirVersion"]) if end and end["index"] >= 0 else None for end in self.sources(batch)]

    @property
    def splits(self) -> Splits:
        """Every version that the query ever read in parts."""
        return Splits(self.path.with_name(f"{self.path.name}.splits"))

    def initial(self, source: int = 0) -> Any:
        """Where a Kafka source began, before the first micro-batch; None when it has not."""
        lines = self._lines("sources/" + str(source), 0)
        return json.loads(lines[1]) if len(lines) > 1 else None

    def _batches(self, folder: str) -> list[int]:
        directory = self.path / folder
        return [int(p.name) for p in directory.iterdir() if p.name.isdigit()] if directory.is_dir() else []

    def _lines(self, folder: str, batch: int | None) -> list[str]:
        file = self.path / folder / str(batch)
        if batch is None or not file.exists():
            return []
        # The sources' initial offsets begin with a zero byte in files of old Spark versions.
        return file.read_text().lstrip("\x00").splitlines()
