"""The base class of all ways to maintain a table: first version, definition, progress."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from twofold.infra.delta.compaction import compact
from twofold.infra.delta.delta_writer import Writer, Written
from twofold.infra.delta.lake import Lake
from twofold.infra.instants import from_epoch_ms
from twofold.streaming.maintain.closed_row_guard import ClosedRowGuard
from twofold.streaming.query.progress import Progress, write
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import (
    FINGERPRINT,
    RULES,
    accept,
    accepted_code,
    code_facts,
    is_same,
    require_one_definition,
)
from twofold.tables.refresh.events.ingested_offsets import APPENDED_MS
from twofold.tables.refresh.streaming_checkpoint import Checkpoint

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

_TIDY_EVERY = 100
_NEWEST = 20  # commits of an input among which one says how fresh it is


@dataclass
class TableStream:
    """Keeps one table fresh in numbered micro-batches."""

    spark: SparkSession
    lake: Lake
    registry: Registry
    table: Table
    _commits: int = field(default=0, init=False)
    _seen: int = field(default=-1, init=False)
    _appended_until: dict[str, int] = field(default_factory=dict, init=False)
    _freshness_s: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._checkpoint = Checkpoint.of_table(self.lake.settings, self.table)
        self._writer = Writer(self.lake, self.table.full_name, self.spark)
        self._sources = self.registry.upstream(self.table)
        self._code = code_facts(self.table, self.registry)
        self._fingerprint = self._code[FINGERPRINT]
        self._guard = ClosedRowGuard(self._checkpoint, self.lake, self.table)

    def _begin_by_one_definition(self) -> None:
        """Abandons a checkpoint of another definition: its state, counts and half-joined rows, is useless.

        The new stream reads its inputs from the beginning. Closed rows were recomputed when the new definition was
        accepted; open rows are deleted here, since this stream writes them again.
        """
        self._require_one_definition(self._writer.newest())
        before = self._checkpoint.definition
        if not is_same(before, self._fingerprint) and not self._checkpoint.is_new:
            self._checkpoint.note_definition(before or "unknown")
            self._checkpoint.set_aside()
        name, fact = self.table.full_name, accepted_code(self.lake, self.table.full_name)
        if fact and fact.rules != self._code[RULES]:  # before a commit of this process names its own
            accept(self.lake, name, fact, instead_of=fact)
        self._guard.record_watermark_once()
        if (noted := self._checkpoint.definition) and not is_same(noted, self._fingerprint):
            self._guard.delete_open_rows(self._writer)
        self._checkpoint.note_definition(self._fingerprint)

    def _require_one_definition(self, table: DeltaTable) -> None:
        """Refuses to continue once the table has another definition than this process.

        Raises:
            DefinitionChanged: names the command that accepts the new definition.
        """
        if table.version() != self._seen:
            require_one_definition(self.lake, self.table, self.registry, table)
            self._seen = table.version()

    def _appended_ms(self, versions: Mapping[str, int], *, is_first: bool) -> int | None:
        """Returns the time when the broker appended the newest record that is new in these versions of the inputs.

        None if no commit records it: batch work wrote it, or Spark wrote a large micro-batch. None also for the first
        micro-batch of a table, whose records were there before the table.
        """
        instants: list[int] = []
        for name, version in versions.items():
            before = self._appended_until.get(name, version - 1)
            commit = self.lake.newest_info(name, APPENDED_MS, min(version - before, _NEWEST), at=version - 1)
            instants += [int(commit[APPENDED_MS])] if commit else []
        self._appended_until = dict(versions)
        return None if is_first else max(instants, default=None)

    def _hold(self, starts: Sequence[int], *, rows: bool = False) -> None:
        """Notes the versions of the inputs from which on the stream, begun again after a crash, would read.

        Args:
            rows: it reads the inputs as they were before these versions.
        """
        for source, start in zip(self._sources, starts, strict=True):
            history = self.lake.history(source.full_name)
            history.note(f"stream of {self.table.full_name}", max(start - 1, 0), rows=rows)

    def _note(
        self,
        batch: int,
        rows_in: int,
        written: Written,
        versions: Mapping[str, int],
        watermark_ms: int | None,
        started: float,
        appended_ms: int | None,
    ) -> None:
        """Records the progress of a micro-batch; merges small files from time to time."""
        now = datetime.now(UTC)
        if rows_in and appended_ms is not None:
            self._freshness_s = now.timestamp() - appended_ms / 1_000
        if written.changed:
            self._commits += 1
            if self._commits % _TIDY_EVERY == 0:
                compact(self.lake, self.table.full_name, self.table.event_time)
        write(
            self.lake.settings,
            Progress(
                domain=self.table.domain,
                query=self.table.name,
                batch=batch,
                watermark=from_epoch_ms(watermark_ms) if watermark_ms and self.table.closes_at else None,
                rows_in=rows_in,
                rows_out=written.changed,
                versions=versions,
                updated_at=now,
                batch_s=time.monotonic() - started,
                freshness_s=self._freshness_s,
            ),
        )
