"""One topic and three tables in small: what a model says of them, and streams of all that do without Spark.

`windows` has state, and the real `TableStream` around a few lines that do what Spark does; `totals` follows it by the
real `ChangeDrivenStream`, and so does `grand_totals` follow `totals`, which is declared later. What the functions of
all say, DuckDB computes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from shutil import rmtree
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from tests.streaming.ingest.small_log import APPENDED
from tests.tables.declared import READINGS, a_topic, bound_as
from twofold.infra.delta.delta_writer import CommitTag, Writer, Written
from twofold.infra.delta.file_pruning import prune_files
from twofold.infra.delta.lake import Lake
from twofold.infra.duckdb_session import duckdb_utc
from twofold.infra.instants import epoch_ms
from twofold.quality.rules import between
from twofold.streaming.maintain.change_driven import ChangeDrivenStream
from twofold.streaming.maintain.stream_fence import StreamFence
from twofold.streaming.maintain.table_stream import TableStream
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION, REPLAYED
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.refresh import open_platform
from twofold.tables.refresh.refresh import Refresher, _Input
from twofold.tables.refresh.scope_predicates import ScopeFilter
from twofold.tables.refresh.streaming_checkpoint import Checkpoint, MicroBatch, delta_offset

WINDOW_S, DELAY_S, PERIOD_S, GRAND_S = 100, 50, 200, 400
GOOD, BAD_VALUE = 0.1, 99.0
SCHEMA_OF_TOPIC = {**READINGS.schema, "sensor": "decimal(38,0)"}
STRICT, LOOSE = (a_topic(schema=SCHEMA_OF_TOPIC, checks=checks) for checks in ([between("value", 0, 10)], []))
CLOCK, A, B = Decimal(-(10**37)), Decimal(10**37), Decimal(10**37 + 1)
"""Sensors: two of them are one number as doubles, and none fits into 64 bits."""
START = APPENDED - timedelta(days=2)
START_MS = cast(int, epoch_ms(START))
WINDOW_MS, DELAY_MS, PERIOD_MS, GRAND_MS = (1_000 * s for s in (WINDOW_S, DELAY_S, PERIOD_S, GRAND_S))
Window = tuple[Decimal, int]
"""A sensor, and when the window begins, epoch milliseconds."""


def windows(readings: Any) -> Any:
    """Readings of each sensor and window, and their sum: what `derived` says in DuckDB."""
    return readings


WINDOWS = bound_as(
    Table(
        derive=windows,
        primary_key=["sensor", "starts_at"],
        event_time="starts_at",
        watermark=f"{DELAY_S} seconds",
        closes_at="closes_at",
        recompute_by=["sensor"],
        depends_within=f"{WINDOW_S} seconds",
    ),
    "windows",
)
SCHEMA = pa.schema(
    [
        ("sensor", pa.decimal128(38, 0)),
        ("starts_at", pa.timestamp("us", tz="UTC")),
        ("closes_at", pa.timestamp("us", tz="UTC")),
        ("readings", pa.int64()),
        ("total", pa.float64()),
    ]
)


def doubled(readings: Any) -> Any:
    """The same, by other code: each sum is twice as large."""
    return [readings, readings]


def totals(windows: Any) -> Any:
    """Sums over two windows of a sensor: what `derived` says in DuckDB."""
    return windows


TOTALS = bound_as(
    Table(
        derive=totals,
        primary_key=["sensor", "starts_at"],
        event_time="starts_at",
        recompute_by=["sensor"],
        depends_within=f"{PERIOD_S} seconds",
    ),
    "totals",
)


def grand_totals(totals: Any) -> Any:
    """Sums over two rows of `totals`: what `derived` says in DuckDB."""
    return totals


GRAND_TOTALS = bound_as(
    replace(TOTALS, derive=grand_totals, depends_within=f"{GRAND_S} seconds"),
    "grand_totals",
)
SCHEMA_OF_TOTALS = SCHEMA.remove(SCHEMA.get_field_index("closes_at")).append(pa.field("name", pa.string()))
SCHEMAS = {
    WINDOWS.full_name: SCHEMA,
    TOTALS.full_name: SCHEMA_OF_TOTALS,
    GRAND_TOTALS.full_name: SCHEMA_OF_TOTALS,
}
STATISTICS = {table.full_name: table.statistics for table in (WINDOWS, TOTALS, GRAND_TOTALS)}
CODES = (WINDOWS, replace(WINDOWS, derive=doubled))
REGISTRIES, WIDER = (
    [Registry({STRICT.full_name: STRICT}, {table.full_name: table for table in (code, *followers)}) for code in CODES]
    for followers in ((TOTALS,), (TOTALS, GRAND_TOTALS))
)
"""By code, before `grand_totals` is declared and after that."""


class Killed(BaseException):
    """Stands for the end of a process."""


def reading(sensor: Decimal, second: int, value: float) -> bytes:
    at = START + timedelta(seconds=second)
    return json.dumps({"sensor": int(sensor), "read_at": at.isoformat(), "value": value, "count": None}).encode()


def window_of(sensor: Decimal, ms: int) -> Window:
    return sensor, ms // WINDOW_MS * WINDOW_MS


def rows_of(sums: dict[Window, tuple[int, float]]) -> pa.Table:
    rows = [
        {
            "sensor": sensor,
            "starts_at": starts_ms * 1_000,
            "closes_at": (starts_ms + WINDOW_MS) * 1_000,
            "readings": readings,
            "total": total,
        }
        for (sensor, starts_ms), (readings, total) in sums.items()
    ]
    plain = pa.schema([pa.field(f.name, pa.int64() if f.name.endswith("_at") else f.type) for f in SCHEMA])
    return pa.Table.from_pylist(rows, schema=plain).cast(SCHEMA)


def sums_of(rows: pa.Table) -> dict[Window, tuple[int, float]]:
    return {(r["sensor"], cast(int, epoch_ms(r["starts_at"]))): (r["readings"], r["total"]) for r in rows.to_pylist()}


def totals_of(sums: dict[Window, tuple[int, float]], period_ms: int = PERIOD_MS) -> dict[Window, tuple[int, float]]:
    """The rows of `totals` for these of `windows`, and with a longer period those of `grand_totals`."""
    parts: dict[Window, list[tuple[int, float]]] = defaultdict(list)
    for (sensor, starts_ms), part in sums.items():
        parts[sensor, starts_ms // period_ms * period_ms].append(part)
    return {period: (sum(n for n, _ in some), sum(x for _, x in some)) for period, some in parts.items()}


def rounded(sums: dict[Window, tuple[int, float]]) -> dict[Window, tuple[int, float]]:
    """The same, without what another order of additions makes of a sum: below a millionth."""
    return {window: (readings, round(total, 6)) for window, (readings, total) in sums.items()}


@dataclass
class Model:
    """What the table is: of the good records each once, the first in the log of those that repeat each other.

    Attributes:
        records: by offset: sensor, epoch milliseconds, value, and whether it is among the events.
    """

    records: list[tuple[Decimal, int, float, bool]] = field(default_factory=list)

    def table(self, code: int = 0) -> dict[Window, tuple[int, float]]:
        """The rows by the first code or the second."""
        first: dict[tuple[Decimal, int], float] = {}
        for sensor, ms, value, accepted in self.records:
            if accepted:
                first.setdefault((sensor, ms), value)
        values: dict[Window, list[float]] = defaultdict(list)
        for (sensor, ms), value in first.items():
            values[window_of(sensor, ms)].append(value)
        return {window: (len(some), sum(some) * (1 + code)) for window, some in values.items()}

    @staticmethod
    def closed(rows: dict[Window, tuple[int, float]], watermark_ms: int) -> dict[Window, tuple[int, float]]:
        """The rows that have closed."""
        return {w: row for w, row in rounded(rows).items() if w[1] + WINDOW_MS < watermark_ms}


@dataclass
class Stream:
    """A stream of the table, as Spark runs it: what it remembers is what the micro-batches of its checkpoint say.

    Attributes:
        reads: the next version of the events.
        code: by which it computes.
        planned: the version that a micro-batch ends before which died, and which is done again as it was planned.
    """

    lake: Lake
    code: int = 0
    reads: int = 0
    batch: int = 0
    watermark_ms: int = 0
    newest_ms: int = 0
    planned: int | None = None
    seen: set[tuple[Decimal, int]] = field(default_factory=set)
    sums: dict[Window, tuple[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        began = TableStream(cast(Any, None), self.lake, REGISTRIES[self.code], CODES[self.code])
        began._begin_by_one_definition()
        self.facts, self.checkpoint, self.guard = began._code, began._checkpoint, began._guard
        self.fence = StreamFence(began._writer, began._require_one_definition)
        if not self.checkpoint.is_new and self.fence.is_of_another(self.checkpoint.stream):
            self.checkpoint.set_aside()
        self.guard.record_watermark_once()

    def step(self, commits: int, dies: str) -> None:
        """One micro-batch; it is done again by the next step when the stream dies in it."""
        newest = self.lake.version(LOOSE.full_name)
        ends = self.planned or (newest + 1 if self.batch == 0 else min(self.reads + commits, newest + 1))
        if ends == self.reads:
            return
        self.planned = ends
        rows = self._read(ends)
        # Spark drops by the watermark of the micro-batch before this one.
        late_ms, watermark_ms = self.watermark_ms, max(self.watermark_ms, self.newest_ms - DELAY_MS, 0)
        table_id = str(self.lake.open(LOOSE.full_name).metadata().id)
        planned = MicroBatch(ends=[delta_offset(table_id, ends)], watermark_ms=watermark_ms)
        self.checkpoint.plan(self.batch, planned)
        if self.batch == 0:
            self.lake.history(LOOSE.full_name).note(f"stream of {WINDOWS.full_name}", ends - 1, rows=True)
            self.fence.claim(self.checkpoint.stream, self.guard)
        if dies == "before":
            return
        seen, sums, revised = set(self.seen), dict(self.sums), set()
        for row in rows:
            sensor, ms = row["sensor"], cast(int, epoch_ms(row["read_at"]))
            window = window_of(sensor, ms)
            if ms + WINDOW_MS <= late_ms or (sensor, ms) in seen:
                continue
            seen.add((sensor, ms))
            if window[1] + WINDOW_MS > late_ms:
                readings, total = sums.get(window, (0, 0.0))
                sums[window] = (readings + 1, total + row["value"])
                revised.add(window)
        self._write({w: sums[w] for w in sorted(revised) if self._is_ours(w)}, ends, watermark_ms)
        if dies == "after":
            return
        self.checkpoint.end(self.batch)
        self.lake.history(LOOSE.full_name).note(f"stream of {WINDOWS.full_name}", max(self.reads - 1, 0))
        self.seen, self.sums, self.reads, self.batch = seen, sums, ends, self.batch + 1
        self.planned = None
        self.newest_ms = max([self.newest_ms, *(cast(int, epoch_ms(row["read_at"])) for row in rows)])
        self.watermark_ms = watermark_ms

    def _is_ours(self, window: Window) -> bool:
        closed_before_ms = self.guard.closed_before_ms
        return closed_before_ms is None or window[1] + WINDOW_MS >= closed_before_ms

    def _read(self, ends: int) -> list[dict[str, Any]]:
        """The events below a version that were not read, in the order of their commits."""
        name, rows = LOOSE.full_name, []
        if self.batch == 0:
            rows = pa.table(self.lake.open(name, ends - 1).scan()).to_pylist()
            rows.sort(key=lambda row: (row[PARTITION], row[OFFSET]))
        else:
            for commit in self.lake.commits(name, self.reads - 1, ends - 1):
                if commit.changes and not commit.rewrites:
                    paths = [f"{self.lake.uri(name)}/{added.path}" for added in commit.added]
                    rows += [row for path in paths for row in pq.read_table(path).to_pylist()]
        return [row for row in rows if not row[REPLAYED]]

    def _write(self, sums: dict[Window, tuple[int, float]], ends: int, watermark_ms: int) -> None:
        info = {
            "cause": "stream",
            "versions": {LOOSE.full_name: ends},
            "watermark_ms": watermark_ms or None,
            **self.facts,
        }
        sums = {window: (readings, total * (1 + self.code)) for window, (readings, total) in sums.items()}

        def write(stamp: CommitTag) -> Written:
            return Writer(self.lake, WINDOWS.full_name).upsert(rows_of(sums), WINDOWS.primary_key, stamp)

        if sums:
            self.fence.commit(self.checkpoint.stream, self.batch, info, write)


class NoSpark:
    """A session that nothing may ask for rows."""

    def newSession(self) -> NoSpark:
        return self


@dataclass
class Follower:
    """A stream of `totals` or `grand_totals`: the real one, without its thread, and with a computation by DuckDB.

    Attributes:
        code: of the checkout that it was started from.
    """

    lake: Lake
    table: Table = TOTALS
    code: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Go on from what the checkpoint says, as a new process does."""
        registry = (REGISTRIES if self.table is TOTALS else WIDER)[self.code]
        self._stream = ChangeDrivenStream(cast(Any, NoSpark()), self.lake, registry, self.table)
        self._stream._begin_by_one_definition()

    def step(self, dies: str = "") -> None:
        """Take in what there is.

        Args:
            dies: before its commit, or after it, before it notes that; or it has lost what it noted. It starts again.
        """
        if dies == "lost":
            rmtree(self._stream._checkpoint.path, ignore_errors=True)
            self.start()
        place = {"before": (Writer, "apply"), "after": (Checkpoint, "take")}.get(dies)
        try:
            with by_duckdb(), dying(place) if place else nullcontext():
                while self._stream.step(None):
                    pass
        except Killed:
            self.start()


@contextmanager
def dying(step: tuple[Any, str], nth: int = 1, *, is_done: bool = False) -> Iterator[None]:
    """The process ends before or after a write is done for the nth time."""
    kind, name = step
    write, left = getattr(kind, name), [nth]

    def died(*args: Any, **how: Any) -> Any:
        left[0] -= 1
        if left[0] > 0:
            return write(*args, **how)
        if is_done:
            write(*args, **how)
        raise Killed

    with patch.object(kind, name, died):
        yield


@dataclass
class Computed:
    """Stands for a frame of Spark."""

    rows: pa.Table

    def toArrow(self) -> pa.Table:
        return self.rows


def derived(refresher: Refresher, wanted: ScopeFilter) -> tuple[Any, list[_Input]]:
    """As `Refresher._derived`, by DuckDB instead of the table's function."""
    name = refresher.table.full_name
    [source] = refresher.registry.upstream(refresher.table)
    table = refresher.opened(source.full_name)
    files = prune_files(table, wanted.input_condition(source, [f.name for f in table.schema().fields]).bounds())
    rows = refresher._few(files, source, wanted)
    if rows is None:  # Spark would read it
        assert isinstance(source, Table)
        rows = pa.table(table.scan())
    connection = duckdb_utc()
    connection.register("input", rows)
    if name in PERIODS_MS:
        found = connection.sql(_PERIODS.format(PERIODS_MS[name] * 1_000))
    else:
        found = connection.sql(_WINDOWS.format(CODES.index(refresher.table) + 1))
    return Computed(found.to_arrow_table().cast(SCHEMAS[name])), [
        _Input(cast(Any, None), len(rows), rows.nbytes, is_near=True)
    ]


_WINDOWS = f"""
    SELECT sensor, make_timestamptz(epoch_us(read_at) // {WINDOW_MS * 1_000} * {WINDOW_MS * 1_000}) AS starts_at,
        starts_at + INTERVAL {WINDOW_S} SECOND AS closes_at, count(*) AS readings, sum(value) * {{}} AS total
    FROM input GROUP BY ALL"""
_PERIODS = """
    SELECT sensor, make_timestamptz(epoch_us(starts_at) // {0} * {0}) AS starts_at,
        sum(readings)::BIGINT AS readings, sum(total) AS total, sensor::VARCHAR AS name
    FROM input GROUP BY sensor, 2"""
PERIODS_MS = {TOTALS.full_name: PERIOD_MS, GRAND_TOTALS.full_name: GRAND_MS}


@contextmanager
def by_duckdb() -> Iterator[None]:
    """Tables are computed, and made, without Spark."""

    def create(spark: Any, lake: Lake, registry: Registry, table: Table) -> None:
        lake.ensure(table.full_name, SCHEMAS[table.full_name], statistics=table.statistics)

    with (
        patch.object(Refresher, "_derived", derived),
        patch.object(Refresher, "has_other_columns", new=False),
        patch.object(open_platform, "_create", create),
    ):
        yield
