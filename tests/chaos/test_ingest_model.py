"""Drivers that sleep, race, are killed and start again with other rules leave what a small model says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.harness.tiers import this_run
from tests.streaming.ingest.small_log import BAD, SmallLog, reading
from tests.tables.declared import a_topic
from twofold.infra.delta.delta_writer import CommitTag, Writer, Written
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.infra.delta.open_table import _TRUSTED_S
from twofold.infra.delta.trim import Limits, Trim
from twofold.infra.errors import WriteConflict
from twofold.infra.instants import epoch_ms
from twofold.infra.project.settings import Settings
from twofold.quality.rules import between
from twofold.streaming.ingest.topic_writer import TopicWriter
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET, PARTITION
from twofold.tables.refresh.events.ingested_offsets import INGEST
from twofold.tables.refresh.events.record_decoder import Decoder

RUNS = 20 * this_run.kills or 6
STRICT, LOOSE = a_topic(checks=[between("value", 0, 10)]), a_topic()
NAME = LOOSE.full_name
PARTITIONS = (0, 1)
Place = tuple[int, int]


class Killed(BaseException):
    """Stands for the end of a driver's process."""


@dataclass
class Model:
    """What ingest is: each record on one side, once, in commits that only go on."""

    records: dict[Place, bytes] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    newest_ms: int | None = None
    number: int = 0
    version: int = 0

    def produce(self, partition: int, value: bytes) -> None:
        self.records[partition, self.end(partition)] = value

    def end(self, partition: int) -> int:
        return sum(p == partition for p, _ in self.records)

    def commit(self, commit: LoggedCommit, rows: list[dict[str, Any]]) -> None:
        """Take in the next version of the events."""
        self.version = commit.version
        if INGEST not in commit.transactions:
            return
        assert commit.transactions[INGEST] == self.number + 1, "the number of a frontier that another one followed"
        self.number += 1
        if "ends" not in commit.info:  # which says from where on records are decoded otherwise
            return
        times = [epoch_ms(row["read_at"]) or 0 for row in rows]
        for row, ms in zip(rows, times, strict=True):
            assert row[LATE_BY_MS] == (None if self.newest_ms is None else self.newest_ms - ms)
        known = [] if self.newest_ms is None else [self.newest_ms]
        self.newest_ms = max([*known, *times], default=None)
        assert commit.info["newest_ms"] == self.newest_ms
        ends = {int(p): end for p, end in commit.info["ends"].items()}
        assert all(ends.get(p, 0) >= end for p, end in self.ends.items()), "the frontier went back"
        self.ends = ends

    def compare(self, events: list[Place], quarantine: list[Place], *, whole: bool) -> None:
        """Hold the places of both tables against the log."""
        there = Counter(events + quarantine)
        assert [place for place, times in there.items() if times > 1] == []
        assert there.keys() <= {(p, o) for p, o in self.records if o < self.ends.get(p, 0)}
        assert [place for place in events if self.records[place] == BAD] == []
        if whole:
            assert there.keys() == self.records.keys()


@dataclass
class Driver:
    """A driver, and what it believes.

    Attributes:
        read: partition -> the offset that it reads next.
        checkpoint: the same, as its home has it.
    """

    feed: TopicWriter
    read: dict[int, int]
    checkpoint: dict[int, int]


class Drivers(RuleBasedStateMachine):
    """Two homes on one lake, and whoever replays, merges and cleans its tables meanwhile."""

    @initialize()
    def begin(self) -> None:
        self.home = Path(mkdtemp(prefix="twofold-model-"))
        self.lake = Lake(Settings(home=self.home))
        self.log = SmallLog(self.lake, LOOSE, {p: [] for p in PARTITIONS})
        self.model = Model()
        self.drivers: list[Driver | None] = [None, None]
        self.checkpoints: list[dict[int, int]] = [{}, {}]

    @rule(
        partition=st.sampled_from(PARTITIONS),
        seconds=st.lists(st.integers(0, 3_000), min_size=1, max_size=4),
        kind=st.sampled_from(["good", "good", "bad", "strict"]),
    )
    def produce(self, partition: int, seconds: list[int], kind: str) -> None:
        for second in seconds:
            value = BAD if kind == "bad" else reading(second, 99.0 if kind == "strict" else 1.0)
            self.log.values[partition].append(value)
            self.model.produce(partition, value)

    @rule(home=st.integers(0, 1), strict=st.booleans(), keeps_checkpoint=st.booleans())
    def start(self, home: int, strict: bool, keeps_checkpoint: bool) -> None:
        self.drivers[home] = self._started(STRICT if strict else LOOSE, self.checkpoints[home], keeps_checkpoint)
        self.checkpoints[home] = self._driver(home).checkpoint

    @rule(home=st.integers(0, 1), few=st.integers(1, 4), only=st.sampled_from([None, *PARTITIONS]))
    def ingest(self, home: int, few: int, only: int | None) -> None:
        self._take(self._driver(home), few, only)

    @rule(home=st.integers(0, 1), commits=st.integers(0, 1), few=st.integers(1, 4))
    def kill(self, home: int, commits: int, few: int) -> None:
        append, left = Writer.append, [commits]

        def counted(writer: Writer, rows: pa.Table, stamp: CommitTag) -> Written:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return append(writer, rows, stamp)

        with patch.object(Writer, "append", counted):
            try:
                self._take(self._driver(home), few, None)
            except Killed:
                self.drivers[home] = None

    @rule(home=st.integers(0, 1), table=st.sampled_from([NAME, NAME + QUARANTINE]), few=st.integers(1, 4))
    def race(self, home: int, table: str, few: int) -> None:
        """The other home's driver takes its next micro-batch while this one's commit is on its way."""
        mine, other = self._driver(home), self._driver(1 - home)
        commit, waiting = Writer._commit, [lambda: self._take(other, few, None)]

        def late(
            writer: Writer, rows: pa.Table, stamp: CommitTag, attempt: Callable[[Any], None], extra: Any = ()
        ) -> Written:
            def attempted(at: Any) -> None:
                if writer.name == table and waiting:
                    waiting.pop()()
                attempt(at)

            return commit(writer, rows, stamp, attempted, extra)

        with patch.object(Writer, "_commit", late):
            self._take(mine, few, None)

    @rule(home=st.integers(0, 1), second=st.integers(0, 3_000))
    def heartbeat(self, home: int, second: int) -> None:
        feed = self._driver(home).feed
        if feed.events.newest_ms is not None and feed.events.newest_ms < second * 1_000:
            feed.move(second * 1_000, 0)

    @precondition(lambda self: len(self.log.accepted) > 1)
    @rule(which=st.integers(0, 100))
    def replay(self, which: int) -> None:
        """An event is published again, as by a replay that finds it different; not the one that tells the time."""
        rows = pa.table(self.lake.open(NAME).scan(columns=[PARTITION, OFFSET, "read_at"])).to_pylist()
        newest = max(row["read_at"] for row in rows)
        older = [row for row in rows if row[OFFSET] is not None and row["read_at"] < newest]
        if not older:
            return
        row = older[which % len(older)]
        self.lake.open(NAME).delete(f"{PARTITION} = {row[PARTITION]} AND {OFFSET} = {row[OFFSET]}")
        place = row[PARTITION], row[OFFSET]
        raw = self.log.raw({place[0]: (place[1], place[1] + 1)})
        writer = Writer(self.lake, NAME)
        again = Decoder(LOOSE, replayed=True).decode(raw, self.model.newest_ms).accepted
        writer.append(again, CommitTag(app="replay", version=writer.next_number("replay"), info={"cause": "replay"}))

    @rule()
    def compact(self) -> None:
        self.lake.open(NAME).optimize.compact()

    @rule(all_but=st.integers(0, 2), table=st.sampled_from([NAME, NAME + QUARANTINE]))
    def clean_log(self, all_but: int, table: str) -> None:
        """The table is trimmed, so that its log forgets its oldest commits."""
        self.lake.open(table).create_checkpoint()
        Trim(self.lake, table, Limits(history_ms=0, commits=all_but, versions_ms=0, bytes=0, least_ms=0)).now()
        # Commits are days old by then: a table that is kept open was looked at more than a minute ago.
        for driver in filter(None, self.drivers):
            for writer in (driver.feed._events_writer, driver.feed._quarantine_writer):
                writer._table._looked_at -= 2 * _TRUSTED_S

    @invariant()
    def each_record_is_on_one_side_once(self) -> None:
        self._follow()
        self.model.compare(self.log.accepted, self.log.rejected, whole=False)

    def teardown(self) -> None:
        try:
            last = self._started(LOOSE, {}, False)
            self._take(last, 1_000, None)
            self._follow()
            self.model.compare(self.log.accepted, self.log.rejected, whole=True)
        finally:
            rmtree(self.home, ignore_errors=True)

    def _follow(self) -> None:
        for commit in self.lake.commits(NAME, self.model.version, self.lake.version(NAME)):
            paths = [f"{self.lake.uri(NAME)}/{added.path}" for added in commit.added]
            self.model.commit(commit, [row for path in paths for row in pq.read_table(path).to_pylist()])

    def _driver(self, home: int) -> Driver:
        driver = self.drivers[home]
        if driver is None:
            driver = self.drivers[home] = self._started(LOOSE, self.checkpoints[home], True)
        return driver

    def _started(self, topic: Any, checkpoint: dict[int, int], keeps_checkpoint: bool) -> Driver:
        feed = self.log.driver(topic)
        if not (checkpoint and keeps_checkpoint):
            checkpoint = {p: feed.events.starts.get(p, feed.events.ends.get(p, 0)) for p in PARTITIONS}
        return Driver(feed, dict(checkpoint), dict(checkpoint))

    def _take(self, driver: Driver, few: int, only: int | None) -> None:
        """A micro-batch of the driver, which is planned again when it fails."""
        ends = {p: min(driver.read[p] + few, self.model.end(p)) for p in PARTITIONS if only in (None, p)}
        ranges = {p: (driver.read[p], end) for p, end in ends.items()}
        if all(start == end for start, end in ranges.values()):
            return
        try:
            self.log.take(driver.feed, ranges)
        except WriteConflict:
            return
        driver.read.update(ends)
        driver.checkpoint.update(ends)


Drivers.TestCase.settings = settings(max_examples=RUNS, stateful_step_count=20, suppress_health_check=list(HealthCheck))
test_drivers_leave_what_the_model_says = pytest.mark.kills(Drivers.TestCase)
