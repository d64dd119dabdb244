"""Streams that are killed, lost and overtaken, the batch, and plans of other code leave what a small model says.

There is no Spark. The streams are of two homes, and keys are decimals of 38 digits. A checkout has one of two codes of
the table; drivers go on by the one with which they were started.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from batch.changelog_check import unexplained_changes
from batch.ledgers.run_ledgers import Ledgers
from batch.ledgers.run_result import RunResult
from batch.plan import publisher
from batch.plan.plan import Plans
from batch.plan.planning import make_plan
from batch.plan.publisher import publish_plan
from batch.reconcile import reconcile_tables
from batch.rewrite import backfill
from batch.rewrite.backfill import recompute
from infra.delta.delta_writer import CommitTag, Writer, Written
from infra.delta.file_pruning import prune_files
from infra.delta.lake import QUARANTINE, Lake
from infra.duckdb_session import duckdb_utc
from infra.errors import BadArgument, DefinitionChanged, PlanVoid, WriteConflict
from infra.instants import epoch_ms
from infra.settings import Settings
from quality.rules import between
from streaming.maintain.stream_fence import StreamFence
from streaming.maintain.table_stream import TableStream
from tables.declare.metadata_columns import OFFSET, PARTITION, REPLAYED
from tables.declare.registry import Registry
from tables.declare.table import Table
from tables.refresh.acceptance import Accepted, accepted_code, code_today
from tables.refresh.events.record_decoder import Decoder
from tables.refresh.open_platform import Platform
from tables.refresh.refresh import Refresher, _Input
from tables.refresh.scope import Scope
from tables.refresh.streaming_checkpoint import MicroBatch, delta_offset
from tests.harness.tiers import this_run
from tests.streaming.ingest.small_log import APPENDED, SmallLog
from tests.tables.declared import READINGS, a_topic, bound_as

RUNS = 20 * (this_run.kills or this_run.worlds) or 4
WINDOW_S, DELAY_S = 100, 50
GOOD, BAD_VALUE = 0.1, 99.0
SCHEMA_OF_TOPIC = {**READINGS.schema, "sensor": "decimal(38,0)"}
STRICT, LOOSE = (a_topic(schema=SCHEMA_OF_TOPIC, checks=checks) for checks in ([between("value", 0, 10)], []))
CLOCK, A, B = Decimal(-(10**37)), Decimal(10**37), Decimal(10**37 + 1)
"""Sensors: two of them are one number as doubles, and none fits into 64 bits."""
START = APPENDED - timedelta(days=2)
START_MS = cast(int, epoch_ms(START))
WINDOW_MS, DELAY_MS = WINDOW_S * 1_000, DELAY_S * 1_000
Window = tuple[Decimal, int]
"""A sensor, and when the window begins, epoch milliseconds."""


def windows(readings: Any) -> Any:
    """Readings of each sensor and window, and their sum: what `computed` says in DuckDB."""
    return readings


TABLE = bound_as(
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


CODES = (TABLE, replace(TABLE, derive=doubled))
REGISTRIES = [Registry({LOOSE.full_name: LOOSE}, {TABLE.full_name: code}) for code in CODES]


Batch = tuple[int, list[int], Decimal, float]
"""By how many seconds time goes on, how many late each record is, and the sensor and the value of these."""
BATCHES = st.lists(
    st.tuples(
        st.integers(20, 150),
        st.lists(st.integers(0, 400), min_size=1, max_size=5),
        st.sampled_from([A, B]),
        st.sampled_from([GOOD, GOOD, 0.2, 0.3, BAD_VALUE]),
    ),
    min_size=2,
    max_size=4,
)


PUBLICATION = [
    (publisher, "accept"),
    (Ledgers, "record_evidence"),
    (Writer, "apply"),
    (Ledgers, "record_run"),
    (publisher, "recompute"),
    (backfill, "accept"),
    (Plans, "save"),
]
"""What the publication of a plan writes, in this order."""
STEPS = [
    (Ledgers, "record_evidence"),
    (Writer, "apply"),
    (Ledgers, "record_corrections"),
    (Ledgers, "record_run"),
    (Ledgers, "move"),
]
"""What a reconcile writes, in this order."""


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
    return {
        (r["sensor"], cast(int, epoch_ms(r["starts_at"]))): (r["readings"], r["total"])
        for r in rows.select(SCHEMA.names).to_pylist()
    }


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

    def compare(self, live: dict[Window, tuple[int, float]], watermark_ms: int, code: int = 0) -> None:
        """Hold the rows that have closed against the live ones."""

        def closed(rows: dict[Window, tuple[int, float]]) -> dict[Window, tuple[int, float]]:
            # What another order of additions makes of a sum is below a millionth.
            return {w: (n, round(x, 6)) for w, (n, x) in rows.items() if w[1] + WINDOW_MS < watermark_ms}

        assert closed(live) == closed(self.table(code))


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
            return Writer(self.lake, TABLE.full_name).upsert(rows_of(sums), TABLE.primary_key, stamp)

        if sums:
            self.fence.commit(self.checkpoint.stream, self.batch, info, write)


@dataclass
class Computed:
    """Stands for a frame of Spark."""

    rows: pa.Table

    def toArrow(self) -> pa.Table:
        return self.rows


def derived(refresher: Refresher, scopes: Sequence[Scope]) -> tuple[Any, list[_Input]]:
    """As `Refresher._derived`, by DuckDB instead of the table's function."""
    wanted, table = refresher._wanted(scopes), refresher.opened(LOOSE.full_name)
    files = prune_files(table, wanted.input_bounds(LOOSE, [f.name for f in table.schema().fields]))
    rows = refresher._few(files, LOOSE, wanted)
    assert rows is not None
    connection = duckdb_utc()
    connection.register("readings", rows)
    window = f"make_timestamptz(epoch_us(read_at) // {WINDOW_MS * 1_000} * {WINDOW_MS * 1_000})"
    found = connection.sql(
        f"SELECT sensor, {window} AS starts_at, starts_at + INTERVAL {WINDOW_S} SECOND AS closes_at, "
        f"count(*) AS readings, sum(value) * {1 + CODES.index(refresher.table)} AS total FROM readings GROUP BY ALL"
    )
    return Computed(found.to_arrow_table().cast(SCHEMA)), [
        _Input(cast(Any, None), len(rows), rows.nbytes, is_near=True)
    ]


class Refreshes(RuleBasedStateMachine):
    """One topic, one table, streams of two homes, and whoever reconciles, replays and cleans meanwhile."""

    @initialize(history=BATCHES)
    def begin(self, history: list[Batch]) -> None:
        self.home = Path(mkdtemp(prefix="twofold-model-"))
        self.lake = Lake(Settings(home=self.home / "first"))
        self.lakes = [
            self.lake,
            Lake(replace(self.lake.settings, home=self.home / "second", lake=self.lake.settings.lake_uri)),
        ]
        self.asleep: Stream | None = None
        self.log, self.model = SmallLog(self.lake, LOOSE, {0: []}), Model()
        self.lake.ensure(TABLE.full_name, SCHEMA, statistics=TABLE.statistics)
        Ledgers(self.lake).ensure()
        self.feed, self.stream = self.log.driver(STRICT), Stream(self.lake)
        self.now = self.checkout = 0
        self.plans: list[str] = []
        self.ingest(history, is_read=True)

    @rule(batches=BATCHES, is_read=st.booleans())
    def ingest(self, batches: list[Batch], is_read: bool) -> None:
        """Micro-batches, each with records that are so many seconds behind its clock."""
        for advance, late, sensor, value in batches:
            self.now += advance
            self._ingest([(CLOCK, self.now, GOOD), *((sensor, max(0, self.now - by), value) for by in late)])
            if is_read:
                self.maintain(1, "")

    def _ingest(self, readings: Sequence[tuple[Decimal, int, float]]) -> None:
        for sensor, second, value in readings:
            self.log.values[0].append(reading(sensor, second, value))
            self.model.records.append((sensor, START_MS + second * 1_000, value, value != BAD_VALUE))
        end = len(self.log.values[0])
        self.log.take(self.feed, {0: (end - len(readings), end)})

    @rule(commits=st.integers(1, 3), dies=st.sampled_from(["", "", "", "before", "after"]))
    def maintain(self, commits: int, dies: str) -> None:
        """A micro-batch; a stream of code that is out stands still."""
        with suppress(DefinitionChanged):
            self.stream.step(commits, dies)

    @rule()
    def check_out(self) -> None:
        """The checkout has the other code from now on; drivers go on by the one that they have loaded."""
        self.checkout = 1 - self.checkout

    @rule()
    def restart(self) -> None:
        """A driver starts by the code of the checkout, unless other code is accepted."""
        if self.checkout == self.stream.code:
            return
        with suppress(DefinitionChanged):
            self.stream = Stream(self.stream.lake, self.checkout)

    @precondition(lambda self: self.stream.batch)
    @rule()
    def plan(self) -> None:
        """What the checkout would change; a table that is right by it has a plan, too, which changes nothing."""
        self.plans.append(self._plan())

    def _plan(self) -> str:
        with self._by_duckdb():
            platform = self._platform(self.checkout)
            return make_plan(
                platform,
                [TABLE.full_name],
                lambda copy: [recompute(copy, CODES[self.checkout], None)],
                cause="definition",
                command=["plan"],
            ).id

    @precondition(lambda self: self.plans)
    @rule(which=st.integers(0, 3), beside=st.integers(0, 2))
    def publish(self, which: int, beside: int) -> None:
        """Publish a plan, while the stream takes some commits before each of its writes."""
        plan = self.plans[which % len(self.plans)]
        with self._stepping(beside):
            self._publish(plan)

    @precondition(lambda self: self.plans)
    @rule(which=st.integers(0, 3), step=st.sampled_from(PUBLICATION), is_done=st.booleans())
    def publish_that_dies(self, which: int, step: tuple[Any, str], is_done: bool) -> None:
        """Publish a plan, which ends before or after one of its writes."""
        with self._dying(step, is_done), suppress(Killed):
            self._publish(self.plans[which % len(self.plans)])

    @precondition(lambda self: self.plans)
    @rule(which=st.integers(0, 3))
    def discard(self, which: int) -> None:
        plans = Plans(self.lake.settings)
        with suppress(BadArgument):
            plans.discard(plans.find(self.plans[which % len(self.plans)]))

    def _publish(self, plan: str) -> None:
        """Publish a plan; one that is void, or was discarded, changes nothing, and once published it stays so."""
        version = self.lake.version(TABLE.full_name)
        try:
            with self._by_duckdb():
                first = publish_plan(self._platform(self.checkout), plan, "")
                again = publish_plan(self._platform(self.checkout), plan, "")
        except (PlanVoid, BadArgument):
            assert self.lake.version(TABLE.full_name) == version
            return
        assert {run.run for run in again} <= {run.run for run in first}

    @precondition(lambda self: self.stream.batch)
    @rule()
    def overtake(self) -> None:
        """The stream of the other home starts, and writes the table; that of this one sleeps."""
        [other] = [lake for lake in self.lakes if lake is not self.stream.lake]
        with suppress(DefinitionChanged):
            self.asleep, self.stream = self.stream, Stream(other, self.stream.code)
            self.maintain(10**6, "")

    @rule()
    def lose_checkpoint(self) -> None:
        fact = accepted_code(self.lake, TABLE.full_name)
        if fact is None or fact.code == self._fact(self.stream.code).code:
            rmtree(self.stream.checkpoint.path, ignore_errors=True)
            self.stream = Stream(self.stream.lake, self.stream.code)

    @precondition(lambda self: self.asleep)
    @rule(commits=st.integers(1, 3))
    def wake(self, commits: int) -> None:
        """The stream that was overtaken goes on, and changes nothing."""
        assert self.asleep
        version, batch = self.lake.version(TABLE.full_name), self.asleep.batch
        try:
            self.asleep.step(commits, "after")
        except (WriteConflict, DefinitionChanged):
            self.asleep = None
        assert self.lake.version(TABLE.full_name) == version, batch

    @precondition(lambda self: self.stream.batch)
    @rule(verify=st.booleans(), beside=st.integers(0, 2))
    def reconcile(self, verify: bool, beside: int) -> None:
        """Reconcile, while the stream takes some commits before what is corrected is published."""
        watermark_ms, fact = self.stream.watermark_ms, accepted_code(self.lake, TABLE.full_name)
        assert fact is not None
        if fact.code != self._fact(self.checkout).code:
            version = self.lake.version(TABLE.full_name)
            # It is refused, or nothing has closed, so that there is nothing to do by any code.
            with pytest.raises(DefinitionChanged) if verify else suppress(DefinitionChanged):
                assert [o.changed for o in self._reconcile(verify=verify)] == [0]
            assert self.lake.version(TABLE.full_name) == version
        elif fact.is_whole:
            with self._stepping(beside):
                outcomes = self._reconcile(verify=verify)
            assert [o.unexplained for o in outcomes if o.unexplained] == []
            self.model.compare(self._live(), watermark_ms, self.checkout)
            assert unexplained_changes(self.lake, CODES[self.checkout]) == 0

    @precondition(lambda self: self.stream.batch)
    @rule(step=st.sampled_from(STEPS), is_done=st.booleans())
    def reconcile_that_dies(self, step: tuple[type, str], is_done: bool) -> None:
        """Reconcile, which ends before or after one of its writes."""
        with self._dying(step, is_done), suppress(Killed, DefinitionChanged):
            self._reconcile()

    @rule()
    def replay(self) -> None:
        """What the rules refused is among the events from now on; the driver goes on with the strict ones."""
        refused = [n for n, (*_, value, accepted) in enumerate(self.model.records) if not accepted]
        if not refused:
            return
        rows = pa.concat_tables([self.log.raw({0: (n, n + 1)}) for n in refused])
        again = Decoder(LOOSE, replayed=True).decode(rows, self.feed.events.newest_ms).accepted
        writer = Writer(self.lake, LOOSE.full_name)
        writer.append(again, CommitTag(app="replay", version=writer.next_number("replay"), info={"cause": "replay"}))
        self.lake.open(LOOSE.full_name + QUARANTINE).delete()
        for n in refused:
            self.model.records[n] = (*self.model.records[n][:3], True)

    @rule(which=st.integers(0, 100))
    def replay_that_refuses(self, which: int) -> None:
        """An event is taken out, as by a replay with stricter rules."""
        there = [n for n, (*_, accepted) in enumerate(self.model.records) if accepted]
        if there:
            n = there[which % len(there)]
            self.lake.open(LOOSE.full_name).delete(f"{OFFSET} = {n}")
            self.model.records[n] = (*self.model.records[n][:3], False)

    @rule(name=st.sampled_from([LOOSE.full_name, TABLE.full_name]))
    def compact(self, name: str) -> None:
        self.lake.open(name).optimize.compact()

    def teardown(self) -> None:
        try:
            for second in (50_000, 50_001, 50_002):
                self._ingest([(CLOCK, second, GOOD)])
                self.maintain(10**6, "")
            if accepted_code(self.lake, TABLE.full_name) not in (None, self._fact(self.checkout)):
                self._publish(self._plan())
                assert accepted_code(self.lake, TABLE.full_name) == self._fact(self.checkout)
            if self.stream.code != self.checkout:
                self.stream = Stream(self.stream.lake, self.checkout)
            for second in (50_003, 50_004, 50_005):
                self._ingest([(CLOCK, second, GOOD)])
                self.maintain(10**6, "")
            assert self.stream.watermark_ms > START_MS + 40_000_000
            self._reconcile(verify=True)
            self.model.compare(self._live(), self.stream.watermark_ms, self.checkout)
            version = self.lake.version(TABLE.full_name)
            again = self._reconcile(verify=True)
            assert [(o.changed, o.unexplained) for o in again] == [(0, 0)] * len(again)
            assert self.lake.version(TABLE.full_name) == version
            assert unexplained_changes(self.lake, CODES[self.checkout]) == 0
        finally:
            rmtree(self.home, ignore_errors=True)

    def _reconcile(self, *, verify: bool = False) -> list[RunResult]:
        with self._by_duckdb():
            return reconcile_tables(self._platform(self.checkout), [CODES[self.checkout]], verify=verify)

    def _platform(self, code: int) -> Platform:
        return Platform(cast(Any, None), self.stream.lake, REGISTRIES[code])

    def _fact(self, code: int) -> Accepted:
        """The fact of a table whose rows all are of a code."""
        return code_today(CODES[code], REGISTRIES[code])

    @contextmanager
    def _by_duckdb(self) -> Iterator[None]:
        with patch.object(Refresher, "_derived", derived), patch.object(Refresher, "has_other_columns", new=False):
            yield

    @contextmanager
    def _dying(self, step: tuple[Any, str], is_done: bool) -> Iterator[None]:
        """The process ends before or after a write."""
        kind, name = step
        write = getattr(kind, name)

        def dying(*args: Any, **how: Any) -> Any:
            if is_done:
                write(*args, **how)
            raise Killed

        with patch.object(kind, name, dying):
            yield

    def _live(self) -> dict[Window, tuple[int, float]]:
        return sums_of(pa.table(self.lake.open(TABLE.full_name).scan()))

    @contextmanager
    def _stepping(self, commits: int) -> Iterator[None]:
        """The stream takes so many commits when a correction is known, and not published yet."""
        apply, left = Writer.apply, [commits]

        def late(writer: Writer, *args: Any, **how: Any) -> Written:
            if left[0]:
                self.maintain(left.pop(), "")
                left.append(0)
            return apply(writer, *args, **how)

        with patch.object(Writer, "apply", late):
            yield


Refreshes.TestCase.settings = settings(
    max_examples=RUNS, stateful_step_count=12, suppress_health_check=list(HealthCheck)
)
for mark in (pytest.mark.kills, pytest.mark.worlds, pytest.mark.timeout(60 + 30 * RUNS)):
    mark(Refreshes.TestCase)
test_a_stream_and_the_batch_leave_what_the_model_says = Refreshes.TestCase
