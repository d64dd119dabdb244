"""A Delta table of delta-rs that tests change in every way, and the copy of one output that follows it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.support.short_history import NOTHING
from tests.tables.declared import a_table
from twofold import to_postgres
from twofold.features.outputs.next_step import Step, next_step
from twofold.features.outputs.output_target import Target
from twofold.features.outputs.position import Position
from twofold.infra.delta.delta_writer import CHANGE, CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.trim import Trim
from twofold.tables.declare.output import Output
from twofold.tables.declare.table import Table
from twofold.tables.output_view import KEY
from twofold.tables.refresh.streaming_checkpoint import Checkpoint

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("closes_at", pa.timestamp("us", "UTC"))])
Row = tuple[str | None, int | None, datetime | None]


def hour(number: int) -> datetime:
    """This many hours after the start."""
    return START + timedelta(hours=number)


def key_of(k: str | None) -> str:
    """The key of a row in its copy."""
    return '{"k":null}' if k is None else f'{{"k":"{k}"}}'


class Follows(Protocol):
    """What has a table with an output."""

    lake: Lake
    output: Output

    @property
    def table(self) -> Table: ...

    def step(self, target: Target) -> Step | None:
        """Let the output take one step; None: the copy shows the table."""
        step = next_step(self.lake, self.table, self.output, target.position(), target)
        if step is not None:
            target.send(step.changes, step.before, step.after)
        return step

    def follow(self, target: Target) -> list[Step]:
        """Let the output take all steps."""
        steps: list[Step] = []
        while step := self.step(target):
            steps.append(step)
            assert len(steps) < 500
        return steps


@dataclass
class FollowedTable(Follows):
    """The table `plant.hours`, with rows of a key, a number and the hour at which they close.

    Attributes:
        versions: version -> the rows that it has.
    """

    lake: Lake
    output: Output = field(default_factory=to_postgres)
    versions: dict[int, dict[str | None, tuple[Any, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.create()

    @property
    def table(self) -> Table:
        return a_table(primary_key=["k"], recompute_by=["k"], event_time="closes_at", outputs=[self.output])

    @property
    def name(self) -> str:
        return self.table.full_name

    @property
    def rows(self) -> dict[str | None, tuple[Any, ...]]:
        return self.versions[max(self.versions)]

    def create(self) -> None:
        """Make the table, again if it was there: with another id, at version 0."""
        shutil.rmtree(self.lake.uri(self.name), ignore_errors=True)
        self.lake.ensure(self.name, SCHEMA, statistics=["k", "closes_at"])
        self.versions = {0: {}}
        self.writer = Writer(self.lake, self.name)

    def note(self, rows: dict[str | None, tuple[Any, ...]]) -> None:
        """Versions between have the rows of the one before: a trim changes properties alone."""
        newest, before = self.lake.version(self.name), max(self.versions)
        self.versions |= dict.fromkeys(range(before + 1, newest), self.versions[before])
        self.versions[newest] = rows

    def put(self, *rows: Row) -> None:
        """Insert or replace rows by one MERGE, as streams and batch do."""
        columns = [pa.array(values, f.type) for values, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
        self.writer.upsert(pa.table(columns, schema=SCHEMA), ["k"], self.stamp())
        self.note({**self.rows, **{row[0]: row for row in rows}})

    def put_far(self, key: str) -> None:
        """Insert or replace a row of a time that no copy can have, which is none of `versions`."""
        far = pa.array([-3 * 10**17], pa.timestamp("us", "UTC"))
        rows = pa.table({"k": [key], "n": [1], "closes_at": far}, schema=SCHEMA)
        self.writer.upsert(rows, ["k"], self.stamp())
        self.note({k: row for k, row in self.rows.items() if k != key})

    @staticmethod
    def schema_of(columns: Sequence[str]) -> pa.Schema:
        """The columns of a copy."""
        return pa.schema([(KEY, pa.string()), *((name, SCHEMA.field(name).type) for name in columns)])

    def stamp(self) -> CommitTag:
        return CommitTag(app="test", version=self.writer.next_number("test"))

    def remove(self, *keys: str) -> None:
        listed = ", ".join(f"'{key}'" for key in keys)
        DeltaTable(self.lake.uri(self.name)).delete(f"k IN ({listed})")
        self.note({k: row for k, row in self.rows.items() if k not in keys})

    def restore(self, version: int) -> None:
        DeltaTable(self.lake.uri(self.name)).restore(version)
        self.note(self.versions[version])

    def compact(self) -> None:
        DeltaTable(self.lake.uri(self.name)).optimize.compact()
        self.note(self.rows)

    def vacuum(self) -> None:
        """Remove all files that the newest version does not need, change feeds too."""
        table = DeltaTable(self.lake.uri(self.name))
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        shutil.rmtree(f"{self.lake.uri(self.name)}/_change_data", ignore_errors=True)
        self.note(self.rows)

    def trim(self) -> None:
        """Remove the history that no reader needs; the writer opens the table again, as after a minute."""
        self.lake.open(self.name).create_checkpoint()
        Trim(self.lake, self.name, NOTHING).now()
        self.writer = Writer(self.lake, self.name)
        self.note(self.rows)

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all rows and columns."""
        write_deltalake(self.lake.uri(self.name), rows, mode="overwrite", schema_mode="overwrite")
        self.note({row["k"]: tuple(row.values()) for row in rows.to_pylist()})

    def close_through(self, at: datetime) -> None:
        """Give the table's stream a watermark."""
        checkpoint = Checkpoint.of_table(self.lake.settings, self.table).path
        for folder in ("offsets", "commits"):
            (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        watermark = f'{{"batchWatermarkMs":{int(at.timestamp() * 1000)}}}'
        (checkpoint / "offsets" / "0").write_text(f"v1\n{watermark}\n-")
        (checkpoint / "commits" / "0").write_text("v1\n{}")

    def expected(self, position: Position) -> list[tuple[Any, ...]]:
        """The rows that the copy has at a position, by the declaration of now."""
        rows = self.versions[position.version].values()
        if self.output.when == "closed":
            closed = position.closed_ms
            rows = [r for r in rows if closed is not None and r[2] and r[2].timestamp() * 1000 <= closed]
        if self.output.where:
            rows = [r for r in rows if r[1] is None or r[1] >= 5]
        chosen = [n for n, c in enumerate(SCHEMA.names) if c in (self.output.columns or SCHEMA.names)]
        return sorted(((key_of(r[0]), *(r[n] for n in chosen)) for r in rows), key=repr)

    def with_output(self, **changes: Any) -> None:
        self.output = replace(self.output, **changes)


@dataclass
class MemoryCopy(Target):
    """A copy in this process, which is right by being simple."""

    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    at: Position | None = None

    def position(self) -> Position | None:
        return self.at

    def send(self, changes: pa.Table, before: Position | None, after: Position) -> None:
        assert self.at == before
        for change in changes.to_pylist():
            self.kept.pop(change[KEY], None)
            if change[CHANGE] != "delete":
                self.kept[change[KEY]] = {c: v for c, v in change.items() if c != CHANGE and not c.startswith("_b")}
        self.at = after

    def sent(self, schema: pa.Schema, page: int, pages: int) -> pa.Table:
        rows = [row for key, row in self.kept.items() if int(md5(key.encode()).hexdigest()[:8], 16) % pages == page]
        return pa.Table.from_pylist([{f.name: row.get(f.name) for f in schema} for row in rows], schema)

    def rows(self, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.get(c) for c in (KEY, *columns)) for row in self.kept.values()), key=repr)
