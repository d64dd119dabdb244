"""Reads and writes the checkpoint of a table's stream: micro-batches, inputs, watermark."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from twofold.infra.atomic_write import settle, write_atomically
from twofold.infra.process.file_locks import exclusive

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.table import Table

GONE = -1
"""A version that is left out, since nobody can read its commit any more."""


@dataclass(frozen=True)
class Splits:
    """Commits that one micro-batch did not take whole: rows of one may be late by others of the same commit."""

    file: Path

    def add(self, source: str, version: int) -> None:
        with self._alone():
            with self.file.open("a") as file:
                file.write(json.dumps([source, version]) + "\n")
            settle([self.file])

    def versions_of(self, source: str) -> list[int]:
        """Returns the source's versions in the order of recording; retried ones occur twice, `GONE` ones are first.

        Readers note how many of them they have looked at.
        """
        return self._read().get(source, [])

    def without(self, gone: Mapping[str, tuple[int, int]]) -> str:
        """Returns what the file would be without versions that nobody reads again: their number alone is left.

        Args:
            gone: source -> the version below which commits are gone, and how many of its versions were looked at.
        """
        lines: list[tuple[str, int]] = []
        for source, versions in self._read().items():
            floor, looked_at = gone.get(source, (0, 0))
            seen = versions[:looked_at]
            number = next((place for place, version in enumerate(seen) if version >= floor), len(seen))
            lines += [*([(source, -number)] if number else []), *((source, kept) for kept in versions[number:])]
        return "".join(json.dumps(line) + "\n" for line in lines)

    def forget(self, gone: Mapping[str, tuple[int, int]]) -> None:
        """Removes such versions, as `without`."""
        with self._alone():
            write_atomically(self.file, self.without(gone))

    def _read(self) -> dict[str, list[int]]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        read: dict[str, list[int]] = {}
        for source, version in map(json.loads, lines):
            read.setdefault(source, []).extend([GONE] * -version if version < 0 else [version])
        return read

    def _alone(self) -> AbstractContextManager[bool]:
        return exclusive(self.file.with_name(f"{self.file.name}.lock"), patience_s=60)


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """A micro-batch as a checkpoint plans it.

    Attributes:
        ends: of each Delta source the offset that it reads up to; None: nothing of it.
        watermark_ms: epoch milliseconds: it closes rows that end before it; None: by what those before it have seen.
        settings: of Spark's, those that state depends on.
        number: in the checkpoint; None if only other micro-batches mention it.
    """

    ends: Sequence[Mapping[str, Any] | None]
    watermark_ms: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    number: int | None = None

    @property
    def versions(self) -> list[int]:
        """The version of each source below which all was read."""
        return [0 if end is None else int(end["reservoirVersion"]) for end in self.ends]

    @property
    def is_between_commits(self) -> bool:
        """Whether it took every commit whole."""
        return all(end is None or end["index"] < 0 for end in self.ends)

    def without_parts(self) -> MicroBatch:
        """Returns the micro-batch without partially read commits; its result is then unknown."""
        if self.is_between_commits:
            return self
        ends = [end and delta_offset(end["reservoirId"], end["reservoirVersion"]) for end in self.ends]
        return MicroBatch(ends=ends, settings=self.settings)


def delta_offset(table_id: str, version: int) -> Mapping[str, Any] | None:
    """Builds the offset of a Delta source that has read all below a version; None for version 0."""
    if version == 0:
        return None
    offset = {"sourceVersion": 1, "reservoirId": table_id, "reservoirVersion": version}
    return {**offset, "index": -1, "isStartingVersion": False}


class FeedPosition(NamedTuple):
    """The position of a table that follows changes.

    Attributes:
        batch: its last micro-batch.
        versions: of each input the one that is read next.
        own: the version of the table before that micro-batch read it; None: of an older format, not known.
    """

    batch: int
    versions: list[int]
    own: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint directory of one query, as Structured Streaming writes it, or of a table that follows changes."""

    path: Path

    @classmethod
    def of_table(cls, settings: Settings, table: Table) -> Checkpoint:
        """Returns the checkpoint of the stream that maintains a table."""
        return cls(settings.checkpoints / table.domain / table.name)

    @property
    def is_new(self) -> bool:
        """Whether no micro-batch was planned with it yet."""
        return not self._batches("offsets") and self.position is None

    @property
    def definition(self) -> str:
        """The fingerprint of the definition that its stream began with; empty if that was not noted."""
        return self._mark.read_text() if self._mark.exists() else ""

    def note_definition(self, fingerprint: str) -> None:
        self._mark.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._mark, fingerprint)

    def set_aside(self) -> None:
        """Renames the checkpoint, so that a new stream begins."""
        aside = self.path.with_name(f"{self.path.name}.{self.definition or 'unknown'}")
        shutil.rmtree(aside, ignore_errors=True)
        self.path.rename(aside)

    @property
    def ended(self) -> list[MicroBatch]:
        """The micro-batches that ended and that it still describes, oldest first; damaged files are passed over.

        A micro-batch is planned when the one before it has ended.
        """
        planned = sorted(self._batches("offsets"))
        last = max([*self._batches("commits"), *(number - 1 for number in planned)], default=-1)
        batches = []
        for number in planned:
            with suppress(ValueError, KeyError, TypeError, IndexError):
                if number <= last:
                    batches.append(self._micro_batch(number))
        return batches

    @property
    def is_whole(self) -> bool:
        """Whether a stream can go on from it, as far as can be known without its state."""
        try:
            if self.position is not None:
                return bool(self.stream)
            ended, planned = self.committed, max(self._batches("offsets"), default=None)
            if ended is None or planned is None:
                return False
            self._next_watermark_ms(ended)
            self._micro_batch(planned)
            return bool(self.stream) and bool(self.ended) and self.ended[-1].number == ended
        except (ValueError, KeyError, TypeError, IndexError):
            return False

    def _micro_batch(self, number: int) -> MicroBatch:
        _, about, *ends = self._lines("offsets", number)
        facts = json.loads(about)
        batch = MicroBatch(
            ends=[None if end == "-" else json.loads(end) for end in ends],
            watermark_ms=int(facts["batchWatermarkMs"]),
            settings=facts["conf"],
            number=number,
        )
        if not batch.versions:
            raise ValueError(f"{self.path}/offsets/{number} names no source")
        return batch

    def plan(self, number: int, batch: MicroBatch) -> None:
        """Makes the query's next start run this micro-batch first, like one interrupted by a crash.

        The first gives the stream its id.
        """
        watermark_ms = self._next_watermark_ms(number - 1) if batch.watermark_ms is None else batch.watermark_ms
        about = {
            "batchWatermarkMs": watermark_ms,
            "batchTimestampMs": int(time.time() * 1_000),
            "conf": dict(batch.settings),
        }
        ends = ["-" if end is None else _json(end) for end in batch.ends]
        self.name_stream()
        self._write(f"offsets/{number}", [_json(about), *ends])

    def end(self, number: int) -> None:
        """Records that a planned micro-batch without state has ended."""
        self._write(f"commits/{number}", [_json({"nextBatchWatermarkMs": 0})])

    def move(self, ends: Sequence[Mapping[str, Any] | None]) -> None:
        """Makes the query continue, with its state, at these offsets of other tables with the same rows.

        Its last two micro-batches, which are what it looks at when it goes on, must have ended at the same place;
        older ones are forgotten.
        """
        last = max(self._batches("commits"))
        for number in self._batches("offsets"):
            if number < last - 1:
                for folder in ("offsets", "commits"):
                    (self.path / folder / str(number)).unlink(missing_ok=True)
            else:
                about = self._lines("offsets", number)[1]
                self._write(f"offsets/{number}", [about, *("-" if end is None else _json(end) for end in ends)])

    def take_place_of(self, lost: Checkpoint) -> None:
        """Replaces the other checkpoint, which is kept under the name `<name>.lost`."""
        lost.take_away()
        self.path.rename(lost.path)

    def take_away(self) -> None:
        """Renames the checkpoint, if there is one, to `<name>.lost`."""
        aside = self.path.with_name(f"{self.path.name}.lost")
        if self.path.exists():
            shutil.rmtree(aside, ignore_errors=True)
            self.path.rename(aside)

    def _next_watermark_ms(self, number: int) -> int:
        """Returns the watermark of the micro-batch after this one, as Spark recorded it; 0 before the first."""
        lines = self._lines("commits", number)
        return int(json.loads(lines[1])["nextBatchWatermarkMs"]) if lines else 0

    def _write(self, name: str, lines: Sequence[str]) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        # A checksum of what stood there before would make Hadoop refuse the file.
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        write_atomically(file, "\n".join(["v1", *lines]))

    @property
    def _mark(self) -> Path:
        return self.path.with_name(f"{self.path.name}.definition")

    @property
    def stream(self) -> str:
        """The id that the query keeps over restarts, and loses with its checkpoint; empty before the first start."""
        metadata = self.path / "metadata"
        return str(json.loads(metadata.read_text())["id"]) if metadata.exists() else ""

    @property
    def position(self) -> FeedPosition | None:
        """The position of a table that follows changes."""
        return FeedPosition(*json.loads(self._position.read_text())) if self._position.exists() else None

    def take(self, position: FeedPosition) -> None:
        """Records that a table that follows changes has ended a micro-batch; the first gives the stream its id."""
        self.name_stream()
        write_atomically(self._position, json.dumps(position))

    def name_stream(self) -> None:
        """Gives the stream an id, if it has none."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.stream:
            write_atomically(self.path / "metadata", json.dumps({"id": str(uuid.uuid4())}))

    @property
    def _position(self) -> Path:
        return self.path / "position"

    @property
    def committed(self) -> int | None:
        """The last micro-batch that ended."""
        return max(self._batches("commits"), default=None)

    def watermark_ms(self, batch: int | None = None) -> int | None:
        """Returns the watermark of that micro-batch, or of the last that ended, epoch milliseconds.

        Spark writes 0 before it has seen an event; that is None here.
        """
        number = self.committed if batch is None else batch
        lines = self._lines("offsets", number)
        return int(json.loads(lines[1])["batchWatermarkMs"]) or None if lines else None

    def sources(self, batch: int) -> list[Any]:
        """Returns the end offsets of a micro-batch, one JSON value per source; empty if the batch is unknown."""
        return [json.loads(line) if line != "-" else None for line in self._lines("offsets", batch)[2:]]

    def next_versions(self, batch: int | None = None) -> list[int]:
        """Returns the next version to read of each Delta source, after a micro-batch or the last that ended."""
        if batch is None and self.position is not None:
            return self.position.versions
        number = self.committed if batch is None else batch
        ends = [] if number is None else self.sources(number)
        # A change data feed that ends with a version may say so by the index of its last file, not by the next version.
        return [0 if end is None else int(end["reservoirVersion"]) + (end["index"] >= 0) for end in ends]

    def first_unread(self) -> list[int]:
        """Returns the oldest version of each Delta source that the last ended micro-batch has not read completely."""
        ends = [] if self.committed is None else self.sources(self.committed)
        return [0 if end is None else int(end["reservoirVersion"]) for end in ends]

    def split_versions(self, batch: int) -> list[int | None]:
        """Returns the version of each Delta source that a micro-batch read in part, else None."""
        return [int(end["reservoirVersion"]) if end and end["index"] >= 0 else None for end in self.sources(batch)]

    @property
    def splits(self) -> Splits:
        """Every version that the query ever read in parts."""
        return Splits(self.path.with_name(f"{self.path.name}.splits"))

    def initial(self, source: int = 0) -> Any:
        """Returns the offsets at which a Kafka source began, before the first micro-batch; None if it has not."""
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


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
