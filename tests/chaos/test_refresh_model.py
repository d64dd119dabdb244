"""Streams that are killed, lost and overtaken, the batch, and plans of other code leave what a small model says.

There is no Spark. The streams are of two homes, and keys are decimals of 38 digits. A checkout has one of two codes of
`windows`, which `totals` follows; drivers go on by the one with which they were started. `grand_totals`, which follows
`totals`, is declared while all run. Two outputs are killed between any of their writes: a webhook of `windows`, whose
rows and position are one transaction, and an index of `totals`, which has them in different files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests import rewrites
from tests.chaos.refresh_world import (
    BAD_VALUE,
    CLOCK,
    CODES,
    GOOD,
    GRAND_TOTALS,
    LOOSE,
    PERIODS_MS,
    REGISTRIES,
    SCHEMA,
    SCHEMAS,
    START_MS,
    STATISTICS,
    STRICT,
    TOTALS,
    WIDER,
    WINDOWS,
    A,
    B,
    Follower,
    Killed,
    Model,
    Stream,
    Window,
    by_duckdb,
    dying,
    reading,
    rounded,
    sums_of,
    totals_of,
)
from tests.harness.tiers import this_run
from tests.infra.webhooks.signed import secret
from tests.streaming.ingest.small_log import SmallLog
from tests.support.short_history import NOTHING
from twofold import to_search, to_webhook
from twofold.batch.changelog_check import unexplained_changes
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import RUNS as RUNS_LEDGER
from twofold.batch.plan import publisher
from twofold.batch.plan.code_changes import code_changes
from twofold.batch.plan.code_plan import plan_code
from twofold.batch.plan.plan import Plans
from twofold.batch.plan.planning import make_plan
from twofold.batch.plan.publisher import publish_plan
from twofold.batch.reconcile import reconcile_tables
from twofold.batch.rewrite import backfill
from twofold.batch.rewrite.backfill import recompute
from twofold.features.outputs.tests.followed_webhook import lake_with
from twofold.features.outputs.tests.moved_outputs import MovedOutput, as_json
from twofold.features.search.tests.moved_index import moved_index
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.delta.trim import Trim
from twofold.infra.errors import BadArgument, DefinitionChanged, PlanVoid, UnexplainedDifference, WriteConflict
from twofold.infra.instants import epoch_ms
from twofold.infra.project.settings import Settings
from twofold.tables.declare.metadata_columns import OFFSET
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import Accepted, accepted_code, code_today
from twofold.tables.refresh.events.record_decoder import Decoder
from twofold.tables.refresh.open_platform import Platform
from twofold_algebra.sql.names import DATAFUSION

RUNS = 20 * (this_run.kills or this_run.worlds) or 2
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


NAMES = (WINDOWS.full_name, TOTALS.full_name, GRAND_TOTALS.full_name)
MEANWHILE = st.sampled_from(["", "", "stream", "follower", "both", "somebody"])
"""Who takes a step while a plan is published, or the tables are reconciled."""
has_stream = precondition(lambda self: self.stream)
has_rows = precondition(lambda self: self.stream and self.stream.batch)
has_plans = precondition(lambda self: self.plans)


APPLY = (Writer, "apply")
"""The write of a difference."""


class Refreshes(RuleBasedStateMachine):
    """One topic, tables, streams of two homes, outputs, and whatever reconciles, damages and cleans meanwhile."""

    @initialize(history=BATCHES, is_there=st.sampled_from([True, True, False]))
    def begin(self, history: list[Batch], is_there: bool = True) -> None:
        """A platform whose tables are there, or are declared while records are there."""
        self.home = Path(mkdtemp(prefix="twofold-model-"))
        self.at_once = patch("twofold.infra.delta.history._NOTED_EVERY_S", 0.0)
        self.at_once.start()
        self.lake = Lake(Settings(home=self.home / "first"))
        self.lakes = [
            self.lake,
            Lake(replace(self.lake.settings, home=self.home / "second", lake=self.lake.settings.lake_uri)),
        ]
        self.stream: Stream | None = None
        self.asleep: Stream | None = None
        self.followers: list[Follower] = []
        self.is_wider = False
        destined = lake_with(self.lake, {"hook": f"http://127.0.0.1:9 {secret()}"})
        self.outputs = [
            MovedOutput(destined, WINDOWS, to_webhook("hook", begin="all")),
            moved_index(destined, TOTALS, to_search(text=["name"]), page=8),
        ]
        self.log, self.model = SmallLog(self.lake, LOOSE, {0: []}), Model()
        Ledgers(self.lake).ensure()
        self.feed = self.log.driver(STRICT)
        self.now = self.checkout = 0
        self.plans: list[str] = []
        self.damaged: dict[str, set[Window]] = {name: set() for name in NAMES}
        if is_there:
            self.start()
        self.ingest(history, is_read=True)

    @precondition(lambda self: not self.stream)
    @rule()
    def start(self) -> None:
        """The first driver starts: its streams make their tables where no plan has."""
        for table in self._declared:
            self.lake.ensure(table.full_name, SCHEMAS[table.full_name], statistics=STATISTICS[table.full_name])
        with suppress(DefinitionChanged):
            self.stream = Stream(self.lake, self.checkout)
            self.start_followers()

    @rule(batches=BATCHES, is_read=st.booleans())
    def ingest(self, batches: list[Batch], is_read: bool) -> None:
        """Micro-batches, each with records that are so many seconds behind its clock."""
        for advance, late, sensor, value in batches:
            self.now += advance
            self._ingest([(CLOCK, self.now, GOOD), *((sensor, max(0, self.now - by), value) for by in late)])
            if is_read and self.stream:
                self.maintain(1, "")

    def _ingest(self, readings: Sequence[tuple[Decimal, int, float]]) -> None:
        for sensor, second, value in readings:
            self.log.values[0].append(reading(sensor, second, value))
            self.model.records.append((sensor, START_MS + second * 1_000, value, value != BAD_VALUE))
        end = len(self.log.values[0])
        self.log.take(self.feed, {0: (end - len(readings), end)})

    @has_stream
    @rule(commits=st.integers(1, 3), dies=st.sampled_from(["", "", "", "before", "after"]))
    def maintain(self, commits: int, dies: str) -> None:
        """A micro-batch; a stream of code that is out does nothing."""
        with suppress(DefinitionChanged):
            self.stream.step(commits, dies)

    @precondition(lambda self: self.followers)
    @rule(which=st.integers(0, 3), dies=st.sampled_from(["", "", "", "before", "after", "lost"]))
    def follow(self, which: int = 0, dies: str = "") -> None:
        """A follower takes in what there is, unless it dies; or it has lost how far it was."""
        self.followers[which % len(self.followers)].step(dies)

    @rule()
    def check_out(self) -> None:
        """The checkout has the other code from now on; drivers go on by the one that they have loaded."""
        self.checkout = 1 - self.checkout

    @has_stream
    @rule()
    def restart(self) -> None:
        """A driver starts by the code of the checkout, unless other code is accepted."""
        if self.checkout == self.stream.code:
            return
        with suppress(DefinitionChanged):
            self.stream = Stream(self.stream.lake, self.checkout)

    @rule()
    def plan(self) -> None:
        """What the checkout would change; a table that is right by it has a plan, too, which changes nothing."""
        changes = self._changes()
        with by_duckdb():
            if changes:
                made = plan_code(self._platform(), changes, who="", why="", sample=None)
            else:
                made = self._planned(WINDOWS.full_name, lambda copy: [recompute(copy, CODES[self.checkout], None)])
        self.plans.append(made.id)

    def _changes(self) -> list[Any]:
        return list(code_changes(self.lake, self._registry, [WINDOWS.domain]))

    def _planned(self, name: str, rewrite: Any, cause: Any = "backfill") -> Any:
        return make_plan(self._platform(), [name], rewrite, cause=cause, command=[cause])

    @has_rows
    @rule(name=st.sampled_from(NAMES))
    def repair(self, name: str) -> None:
        """A plan of what overwrites the rows of a table that nothing explains, unless other code is accepted."""
        table = next((one for one in self._declared if one.full_name == name), None)
        if table is None or not self.lake.exists(name):
            return
        with suppress(DefinitionChanged), by_duckdb():
            made = self._planned(name, lambda copy: reconcile_tables(copy, [table], repair=True), "repair")
            self.plans.append(made.id)

    @has_plans
    @rule(which=st.integers(0, 3), step=st.sampled_from(PUBLICATION), nth=st.integers(1, 2), who=MEANWHILE)
    def publish(self, which: int, step: tuple[Any, str], nth: int, who: str) -> None:
        """Publish a plan, while a stream takes some commits before one of its writes."""
        with self._meanwhile(step, nth, who):
            self._publish(self.plans[which % len(self.plans)])

    @has_plans
    @rule(which=st.integers(0, 3), step=st.sampled_from(PUBLICATION), nth=st.integers(1, 2), is_done=st.booleans())
    def publish_that_dies(self, which: int, step: tuple[Any, str], nth: int, is_done: bool) -> None:
        """Publish a plan, which ends before or after one of its writes."""
        with dying(step, nth, is_done=is_done), suppress(Killed):
            self._publish(self.plans[which % len(self.plans)])

    @has_rows
    @rule(
        step=st.sampled_from(PUBLICATION),
        nth=st.integers(1, 3),
        end=st.sampled_from([None, False, True]),
        who=MEANWHILE,
    )
    def backfill(self, step: tuple[Any, str], nth: int, end: bool | None, who: str) -> None:
        """All rows by the checkout's code at once, which may end before or after one of its writes."""
        at = self._meanwhile(step, nth, who) if end is None else dying(step, nth, is_done=end)
        with at, by_duckdb(), suppress(Killed):
            rewrites.backfill(self._platform(), CODES[self.checkout])

    @has_plans
    @rule(which=st.integers(0, 3))
    def discard(self, which: int) -> None:
        plans = Plans(self.lake.settings)
        with suppress(BadArgument):
            plans.discard(plans.find(self.plans[which % len(self.plans)]))

    def _publish(self, plan: str) -> None:
        """Publish a plan; one that is void, or was discarded, changes nothing, and once published it stays so."""
        versions = self._versions()
        try:
            with by_duckdb():
                first = publish_plan(self._platform(), plan, "")
                again = publish_plan(self._platform(), plan, "")
        except (PlanVoid, BadArgument):
            assert self._versions() == versions
            return
        assert again == first[: len(again)]

    @precondition(lambda self: not self.is_wider)
    @rule()
    def declare(self) -> None:
        """The checkout has one more table, which no stream maintains yet."""
        self.is_wider = True

    @has_stream
    @rule()
    def start_followers(self) -> None:
        """The declared tables that follow others get their streams, which make them where no plan has."""
        assert self.stream
        for table in self._declared[1:]:
            if not any(f.table is table and f.lake is self.stream.lake for f in self.followers):
                self.lake.ensure(table.full_name, SCHEMAS[table.full_name], statistics=STATISTICS[table.full_name])
                self.followers.append(Follower(self.stream.lake, table))
        self.followers.sort(key=lambda follower: self._declared.index(follower.table))

    @rule(which=st.integers(0, 1), most=st.integers(1, 4), writes=st.none() | st.integers(0, 12))
    def move(self, which: int, most: int, writes: int | None) -> None:
        """An output takes some steps, unless its process ends before the write after so many."""
        self.outputs[which].move(most, writes)

    @has_rows
    @rule(which=st.integers(0, 1), row=st.integers(0, 5), is_there=st.booleans(), writes=st.integers(2, 5))
    def cut_short(self, which: int, row: int, is_there: bool, writes: int) -> None:
        """An output's process ends in a step, after which its table goes back."""
        self.outputs[which].move()
        self.damage(NAMES[which], row, is_there)
        self.outputs[which].move(1, writes)
        self.roll_back(NAMES[which], 1)

    @rule()
    def compare(self) -> None:
        """An output that has caught up shows its table."""
        for output in self.outputs:
            output.move()
            name = output.table.full_name
            if self.lake.exists(name):
                assert output.rows() == as_json(pa.table(self.lake.open(name).scan()).to_pylist())

    @has_rows
    @rule()
    def overtake(self) -> None:
        """The streams of the other home start, and write the tables; the one with state sleeps in this one."""
        [other] = [lake for lake in self.lakes if lake is not self.stream.lake]
        with suppress(DefinitionChanged):
            self.asleep, self.stream = self.stream, Stream(other, self.stream.code)
            self.maintain(10**6, "")
            self.start_followers()

    @has_stream
    @rule()
    def lose_checkpoint(self) -> None:
        fact = accepted_code(self.lake, WINDOWS.full_name)
        if fact is None or fact.code == self._fact(self.stream.code).code:
            rmtree(self.stream.checkpoint.path, ignore_errors=True)
            self.stream = Stream(self.stream.lake, self.stream.code)

    @precondition(lambda self: self.asleep)
    @rule(commits=st.integers(1, 3))
    def wake(self, commits: int) -> None:
        """The stream that was overtaken goes on, and changes nothing."""
        assert self.asleep
        version, batch = self.lake.version(WINDOWS.full_name), self.asleep.batch
        try:
            self.asleep.step(commits, "after")
        except (WriteConflict, DefinitionChanged, FileNotFoundError):  # the last: the other one needs no older commit
            self.asleep = None
        assert self.lake.version(WINDOWS.full_name) == version, batch

    @has_rows
    @rule(verify=st.booleans(), step=st.sampled_from(STEPS), who=MEANWHILE)
    def reconcile(self, verify: bool, step: tuple[Any, str], who: str) -> None:
        """Reconcile, while a stream takes some commits before one of its writes."""
        watermark_ms, fact = self.stream.watermark_ms, accepted_code(self.lake, WINDOWS.full_name)
        assert fact is not None
        if fact.code != self._fact(self.checkout).code:
            version = self.lake.version(WINDOWS.full_name)
            # It is refused, or nothing has closed, so that there is nothing to do by any code.
            with pytest.raises(DefinitionChanged) if verify else suppress(DefinitionChanged), by_duckdb():
                found = reconcile_tables(self._platform(), self._declared[:1], verify=verify)
                assert [o.changed for o in found] == [0]
            assert self.lake.version(WINDOWS.full_name) == version
        elif fact.is_whole:
            with self._meanwhile(step, 1, who):
                named = self.found(verify=verify)
            if verify and not who:
                assert self._wrong(watermark_ms) <= named[WINDOWS.full_name]
            assert self._wrong(watermark_ms) <= self.damaged[WINDOWS.full_name]
            self._require_history()

    @has_rows
    @rule(step=st.sampled_from(STEPS), nth=st.integers(1, 2), is_done=st.booleans())
    def reconcile_that_dies(self, step: tuple[type, str], nth: int, is_done: bool) -> None:
        """Reconcile, which ends before or after one of its writes."""
        with dying(step, nth, is_done=is_done), suppress(Killed, DefinitionChanged):
            self.found()

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

    @has_stream
    @rule(name=st.sampled_from(NAMES), which=st.integers(0, 5), is_there=st.booleans())
    def damage(self, name: str, which: int, is_there: bool) -> None:
        """A row is overwritten, or deleted, past the platform."""
        rows = sorted(self.live(name))
        if not rows:
            return
        sensor, starts_ms = row = rows[which % len(rows)]
        starts_at = DATAFUSION.moment(SCHEMA.field("starts_at").type, starts_ms)
        where = f"sensor = CAST('{sensor}' AS DECIMAL(38, 0)) AND starts_at = {starts_at}"
        table = self.lake.open(name)
        changed = table.update({"total": "1000.0"}, predicate=where) if is_there else table.delete(where)
        assert changed["num_updated_rows" if is_there else "num_deleted_rows"] == 1
        self.damaged[name].add(row)

    @rule(name=st.sampled_from(NAMES), back=st.integers(1, 4))
    def roll_back(self, name: str, back: int) -> None:
        """A table goes back by some versions, past the platform, as far as its files are there and of its code."""
        if not self.lake.exists(name):
            return
        newest, before = self.lake.version(name), self.live(name)
        version = max(newest - back, self.lake.history(name).floor().rows)
        fact = accepted_code(self.lake, name)
        if version < newest and fact and accepted_code(self.lake, name, self.lake.open(name, version)) == fact:
            self.lake.open(name).restore(version)
            after = self.live(name)
            self.damaged[name] |= {row for row in {*before, *after} if before.get(row) != after.get(row)}

    @rule(name=st.sampled_from([LOOSE.full_name, *NAMES]))
    def compact(self, name: str) -> None:
        if self.lake.exists(name):
            self.lake.open(name).optimize.compact()

    @rule(name=st.sampled_from([LOOSE.full_name, *NAMES]))
    def trim(self, name: str) -> None:
        """The history of a table goes as far as its readers allow; no batch work reads it now."""
        if self.lake.exists(name):
            self.lake.history(name).end(f"process {os.getpid()}")
            self.lake.open(name).create_checkpoint()
            Trim(self.lake, name, NOTHING).now()

    def teardown(self) -> None:
        try:
            self.end()
        finally:
            self.at_once.stop()
            rmtree(self.home, ignore_errors=True)

    def end(self) -> None:
        """The checkout's code is applied, its drivers start, and what began ends: all is what the checkout makes."""
        self.is_wider = True
        self._go_on_to(50_000)
        for plan in self.plans:
            self._publish(plan)
        if self._changes():
            self.plan()
            self._publish(self.plans[-1])
        if self.stream is None:
            self.start()
        elif self.stream.code != self.checkout:
            self.stream = Stream(self.stream.lake, self.checkout)
        self.start_followers()
        assert accepted_code(self.lake, WINDOWS.full_name) in (None, self._fact(self.checkout))
        self._go_on_to(60_000)
        assert self.stream.watermark_ms > START_MS + 40_000_000
        assert self._changes() == []
        named = self.found(verify=True)
        assert named[WINDOWS.full_name] == self._wrong(self.stream.watermark_ms)
        for name in filter(named.get, named):
            self.repair(name)
            self._publish(self.plans[-1])
            self._go_on_to(70_000)
        assert self.found(verify=True) == {name: set() for name in NAMES}
        assert self._wrong(self.stream.watermark_ms) == set()
        for name, period_ms in PERIODS_MS.items():
            assert rounded(self.live(name)) == rounded(totals_of(self.live(), period_ms))
        self.compare()
        versions = self._versions()
        for follower in self.followers:
            follower.step()
        self.found(verify=True)
        assert self._versions() == versions
        self._require_history()
        columns = pa.table(self.lake.open(RUNS_LEDGER).scan(columns=["table", "run"])).to_pydict()
        assert self._runs() <= set(zip(columns["table"], columns["run"], strict=True))

    def _go_on_to(self, second: int) -> None:
        """Time goes on until all that was ingested before has closed, and the streams take it in."""
        for n in range(3):  # a micro-batch that died is done again first
            self._ingest([(CLOCK, second + n, GOOD)])
            if self.stream:
                self.maintain(10**6, "")
        for follower in self.followers:
            follower.step()

    def found(self, *, verify: bool = False) -> dict[str, set[Window]]:
        """Reconcile; with `verify`, the rows that nothing explains, which were damaged."""
        named: dict[str, set[Window]] = {name: set() for name in NAMES}
        try:
            with by_duckdb():
                found = reconcile_tables(self._platform(), self._there, verify=verify)
            assert [o.unexplained for o in found if o.unexplained] == []
        except UnexplainedDifference as error:
            for name, differences in cast(dict[str, Any], error.facts["differences"]).items():
                keys = [difference["key"] for difference in differences]
                named[name] = {
                    (Decimal(k["sensor"]), int(epoch_ms(datetime.fromisoformat(k["starts_at"])))) for k in keys
                }
                assert named[name] <= self.damaged[name]
            if not any(self.damaged.values()):
                raise
        return named

    def _require_history(self) -> None:
        """The stream's commits and the corrections are the tables, but for rows that were damaged."""
        for table in self._there:
            assert unexplained_changes(self.lake, table) <= len(self.damaged[table.full_name])

    def _wrong(self, watermark_ms: int) -> set[Window]:
        """The closed windows that are not what the model says."""
        live, should = (
            self.model.closed(rows, watermark_ms) for rows in (self.live(), self.model.table(self.checkout))
        )
        return {window for window in {*live, *should} if live.get(window) != should.get(window)}

    def _runs(self) -> set[tuple[str, str]]:
        """Table and name of each run of the batch that has changed rows, by its commits."""
        commits = (
            (name, c) for name, last in self._versions().items() for c in self.lake.commits(name, 0, last, kept=True)
        )
        return {(name, c.info["run"]) for name, c in commits if c.changes and "run" in c.info}

    def _versions(self) -> dict[str, int]:
        return {name: self.lake.version(name) for name in NAMES if self.lake.exists(name)}

    @property
    def _declared(self) -> list[Table]:
        """The tables as the checkout declares them."""
        return [CODES[self.checkout], TOTALS, *([GRAND_TOTALS] if self.is_wider else [])]

    @property
    def _there(self) -> list[Table]:
        """Those of them that a stream or a plan has made."""
        return [table for table in self._declared if self.lake.exists(table.full_name)]

    @property
    def _registry(self) -> Registry:
        return (WIDER if self.is_wider else REGISTRIES)[self.checkout]

    def _platform(self) -> Platform:
        return Platform(cast(Any, None), self.stream.lake if self.stream else self.lake, self._registry)

    def _fact(self, code: int) -> Accepted:
        """The fact of a table whose rows all are of a code."""
        return code_today(CODES[code], REGISTRIES[code])

    def live(self, name: str = WINDOWS.full_name) -> dict[Window, tuple[int, float]]:
        return sums_of(pa.table(self.lake.open(name).scan())) if self.lake.exists(name) else {}

    @contextmanager
    def _meanwhile(self, step: tuple[Any, str], nth: int, who: str) -> Iterator[None]:
        """Streams take a step before a write is done for the nth time."""
        kind, name = step
        write, left = getattr(kind, name), [nth]

        def late(*args: Any, **how: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                if who in ("stream", "both") and self.stream:
                    self.maintain(2, "")
                if who in ("follower", "both") and self.followers:
                    self.follow()
                if who == "somebody" and self.stream:
                    self.damage(NAMES[nth % 2], 5, True)
            return write(*args, **how)

        with patch.object(kind, name, late):
            yield


Refreshes.TestCase.settings = settings(
    max_examples=RUNS, stateful_step_count=16, suppress_health_check=list(HealthCheck)
)
for mark in (pytest.mark.kills, pytest.mark.worlds, pytest.mark.timeout(60 + 30 * RUNS)):
    mark(Refreshes.TestCase)
test_a_stream_and_the_batch_leave_what_the_model_says = Refreshes.TestCase
