"""What can be known from the logs is known without an engine, and a stream's own work is no work for reconcile."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.support.loaded_modules import loading_none_of
from tests.tables.declared import a_table
from twofold.batch import pending_work
from twofold.batch.audit import table_audit
from twofold.batch.audit.hash_buckets import Turn
from twofold.batch.audit.table_audit import AuditReport, audit
from twofold.batch.ledgers.reconcile_position import POSITIONS, ReconcilePosition, reconcile_positions
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import Audited, RunResult
from twofold.batch.pending_work import has_taken_in, nothing_to_do, pending_tables, untouched
from twofold.batch.pinned_versions import Pinned
from twofold.batch.reconcile import Reconcile, reconcile, reconcile_tables
from twofold.infra.delta.compaction import compact
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration, TwofoldError, WriteConflict
from twofold.infra.instants import EPOCH, Interval
from twofold.tables.declare.code_fingerprint import fingerprint
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.table import Table
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.scope import Scope
from twofold.tables.refresh.streaming_checkpoint import Checkpoint, MicroBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.delta.logged_commit import LoggedCommit
    from twofold.infra.project.settings import Settings

SCHEMA = pa.schema([("flight_id", pa.string())])
HOUR_MS = 3_600_000
FAULTS = {"plant.a": BadDeclaration("tables/plant/a.py, line 1: invalid syntax.")}


def test_neither_the_plan_nor_any_declaration_loads_an_engine() -> None:
    load()  # what follows from the functions is kept now, as any command does
    heavy = {"pyspark", "airflow", "duckdb", "pyarrow", "pandas", "numpy"}
    loading_none_of(
        heavy, "import twofold.batch.pending_work; from twofold.tables.declare.registry import load; load()"
    )


def test_before_the_first_reconcile_everything_is_work(settings: Settings) -> None:
    assert untouched(settings) is None


def test_a_look_at_what_is_pending_is_noted_too(idle: Idle) -> None:
    idle.ingest(300)
    assert pending_tables(idle.lake.settings, [idle.table.full_name]) == []
    assert reconcile_positions(idle.lake)[idle.table.full_name].consumed[idle.topic.full_name] == 300
    assert idle.look() == (True, 0)


def test_tables_below_one_with_work_are_pending_too(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with_work = {"flights.delays_by_hour", "flights.plane_days"}
    right = ReconcilePosition()
    monkeypatch.setattr(pending_work, "_after", lambda _, r, t, b: None if t.full_name in with_work else right)
    assert set(pending_tables(settings, ["flights"])) == {*with_work, "flights.delay_trend"}
    assert pending_tables(settings, ["flights.flights"]) == []


def test_with_a_file_that_cannot_be_loaded_not_all_is_right(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = load()
    monkeypatch.setattr(pending_work, "nothing_to_do", lambda *_: True)
    assert untouched(settings)
    monkeypatch.setattr(pending_work, "load", lambda: replace(declared, faults=FAULTS))
    assert untouched(settings) is None
    assert untouched(settings, ["flights"])
    monkeypatch.setattr(pending_work, "load", lambda: replace(declared, faults={"flights.a": FAULTS["plant.a"]}))
    assert untouched(settings, ["flights"]) is None
    assert untouched(settings, ["delays_by_hour"])


@pytest.mark.parametrize("names", [[], ["plant"]])
def test_work_on_a_domain_ends_with_the_files_that_cannot_be_loaded(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """No table is left to work on here, so that no engine is needed."""
    topics = {"plant.readings": replace(next(iter(load().topics.values())), domain="plant", name="readings")}
    for module in ("twofold.tables.declare.registry", "twofold.batch.audit.table_audit"):
        monkeypatch.setattr(f"{module}.load", lambda: Registry(topics, {}, FAULTS))
    with pytest.raises(BadDeclaration, match=r"plant/a\.py, line 1") as raised:
        reconcile(settings, names)
    assert raised.value is FAULTS["plant.a"]
    report = audit(settings, names)
    assert [(audited.table, audited.skipped) for audited in report.tables] == [("plant.a", raised.value.message)]
    assert not report.passed


def test_a_failure_of_any_kind_stops_no_other_table(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = load()
    tables = [registry.find_table(name) for name in ("flights", "delays_by_hour", "carrier_days")]
    platform, done = Platform(_no_engine, Lake(settings), registry), []

    def work(table: Table) -> None:
        if table is not tables[2]:
            raise (ZeroDivisionError("[DIVIDE_BY_ZERO] by 0") if table is tables[0] else WriteConflict("others won"))
        done.append(table.name)

    def run(self: Reconcile, *, verify: bool) -> list[RunResult]:
        work(self.table)
        return [RunResult(table=self.table.full_name, cause="late", run="r", unexplained=0)]

    def looked_at(_: Platform, table: Table, turn: Turn) -> Audited:
        work(table)
        return Audited(table=table.full_name, run="r", turn=turn.number, of=turn.of, buckets=1)

    monkeypatch.setattr(Reconcile, "__post_init__", lambda _: None)
    monkeypatch.setattr(Reconcile, "run", run)
    monkeypatch.setattr(table_audit, "audit_table", looked_at)
    with pytest.raises(TwofoldError, match=r"flights\.flights: ZeroDivisionError: .*others won") as raised:
        reconcile_tables(platform, tables, repair=True)
    assert (done, raised.value.exit_code) == (["carrier_days"], 1), "another try does not heal a division"
    report = AuditReport(tables=table_audit.audit_tables(platform, tables, Turn()))
    assert (done, report.passed) == (["carrier_days"] * 2, False)
    assert [audited.skipped.split(":")[0] for audited in report.tables] == ["flights.flights", "others won", ""]


def _no_engine() -> SparkSession:
    raise AssertionError("an engine is not needed")


def test_a_session_that_a_record_in_flight_makes_longer_is_no_surprise() -> None:
    pinned = object.__new__(Pinned)
    times = {"event_time": "starts_at", "ends_at": "ends_at", "closes_at": None, "watermark": None}
    pinned.table = a_table(primary_key=["sensor", "starts_at"], **times)
    at = [EPOCH + timedelta(hours=hour) for hour in range(9)]
    in_flight = [Scope(("a",), Interval(3 * HOUR_MS, 4 * HOUR_MS))]
    sessions = [
        ("a", at[0], at[3], at[2]),
        ("a", at[4], at[6], at[6]),
        ("a", at[7], at[8], None),
        ("b", at[0], at[5], None),
    ]
    rows = pa.table(list(zip(*sessions, strict=True)), names=["sensor", "starts_at", "ends_at", "_before_ends_at"])
    assert pinned.outside(rows, in_flight)["starts_at"].to_pylist() == [at[7], at[0]]


@pytest.mark.parametrize(("reads_next", "is_taken_in"), [(0, False), (2, False), (3, True), (4, True)])
def test_what_the_stream_has_read_by_itself_is_no_work(
    settings: Settings, lake: Lake, reads_next: int, is_taken_in: bool
) -> None:
    """Version 0 makes the table, 1 and 2 change it, 3 is maintenance."""
    registry = load()
    below, above = registry.find_table("carrier_days"), registry.find_table("flights")
    lake.ensure(above.full_name, SCHEMA, statistics=["flight_id"])
    for number in (1, 2):
        row = pa.table({"flight_id": [f"UA{number}"]}, schema=SCHEMA)
        Writer(lake, above.full_name).append(row, CommitTag(app="stream/1", version=number))
    compact(lake, above.full_name)
    checkpoint = Checkpoint.of_table(settings, below)
    for folder in ("offsets", "commits"):
        (checkpoint.path / folder).mkdir(parents=True)
    end = {"reservoirVersion": reads_next, "index": -1}
    lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(end)]
    (checkpoint.path / "offsets" / "0").write_text("\n".join(lines))
    (checkpoint.path / "commits" / "0").write_text("v1")
    newest = lake.version(above.full_name)
    assert newest == 3
    assert has_taken_in(lake, registry, below, checkpoint, above, newest) is is_taken_in


@dataclass
class Idle:
    """`delays_by_hour`, reconciled when its input had one version; what comes after is counted as it is read."""

    lake: Lake
    read: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = load()
        self.table, self.topic = self.registry.find_table("delays_by_hour"), self.registry.find_topic("departures")
        for name in (self.table.full_name, self.topic.full_name):
            self.lake.ensure(name, SCHEMA, statistics=["flight_id"])
        checkpoint = Checkpoint.of_table(self.lake.settings, self.table)
        end = {"reservoirId": "r", "reservoirVersion": 1, "index": -1}
        checkpoint.plan(0, MicroBatch(ends=[end], watermark_ms=1_000_000))
        checkpoint.end(0)
        ledgers, mark = Ledgers(self.lake), fingerprint(self.table)
        ledgers.ensure()
        consumed = {self.topic.full_name: 0, self.table.full_name: 0}
        pending = {Scope(("EWR",), Interval(0, 3_000_000)): 2_000_000}
        state = ReconcilePosition(consumed=consumed, stream=checkpoint.stream, pending=pending, fingerprint=mark)
        ledgers.record_run(RunResult(table=self.table.full_name, cause="late", run="late-1"), state, mark)

    def ingest(self, commits: int, late_by_ms: int = 0) -> None:
        """Commits to the events, as the log tells of them."""
        log, first = (
            Path(self.lake.uri(self.topic.full_name), "_delta_log"),
            self.lake.version(self.topic.full_name) + 1,
        )
        stats = json.dumps({"numRecords": 1, "maxValues": {"_late_by_ms": late_by_ms}})
        add = {"path": "a.parquet", "size": 1, "dataChange": True, "stats": stats}
        info = {"timestamp": 1, "userMetadata": json.dumps({"cause": "ingest"})}
        text = json.dumps({"commitInfo": info}) + "\n" + json.dumps({"add": add})
        for version in range(first, first + commits):
            (log / f"{version:020d}.json").write_text(text)

    def look(self) -> tuple[bool, int]:
        """Whether there is nothing to do, and how many commits were read for that."""
        self.read.clear()
        return nothing_to_do(self.lake, self.registry, [self.table]), len(self.read)


@pytest.fixture
def idle(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Idle:
    idle, read = Idle(lake), pending_work._facts

    def counted(commit: LoggedCommit) -> pending_work._Facts:
        idle.read.append(commit.version)
        return read(commit)

    monkeypatch.setattr(pending_work, "_facts", counted)
    return idle


def test_commits_in_which_nothing_was_late_are_looked_through_once(idle: Idle) -> None:
    before = reconcile_positions(idle.lake)[idle.table.full_name]
    idle.ingest(300)
    assert idle.look() == (True, 300)
    assert idle.look() == (True, 0)
    after = reconcile_positions(idle.lake)[idle.table.full_name]
    assert after.consumed == {idle.topic.full_name: 300, idle.table.full_name: 0}
    assert (after.pending, after.stream, after.fingerprint) == (before.pending, before.stream, before.fingerprint)
    idle.ingest(2)
    idle.ingest(1, late_by_ms=10**9)
    assert idle.look() == (False, 3)


def test_a_look_at_few_commits_leaves_no_commit_in_the_ledger(idle: Idle) -> None:
    version = idle.lake.version(POSITIONS)
    idle.ingest(50)
    assert [idle.look(), idle.look()] == [(True, 50), (True, 50)]
    assert idle.lake.version(POSITIONS) == version


@pytest.mark.parametrize(("watermark_ms", "is_idle"), [(1_500_000, True), (2_000_000, True), (2_000_001, False)])
def test_a_scope_that_waits_is_work_once_a_row_of_it_has_closed(idle: Idle, watermark_ms: int, is_idle: bool) -> None:
    checkpoint = Checkpoint.of_table(idle.lake.settings, idle.table)
    checkpoint.plan(1, MicroBatch(ends=[{"reservoirId": "r", "reservoirVersion": 1}], watermark_ms=watermark_ms))
    checkpoint.end(1)
    assert idle.look() == (is_idle, 0)


def test_work_leaves_the_position_where_it_was(idle: Idle) -> None:
    idle.ingest(200)
    idle.ingest(1, late_by_ms=10**9)
    for _ in range(2):
        assert not idle.look()[0]
    assert reconcile_positions(idle.lake)[idle.table.full_name].consumed[idle.topic.full_name] == 0


def test_pending_work_waits_until_the_last_row_it_reaches_has_closed() -> None:
    pinned = object.__new__(Pinned)
    pinned.table, pinned.watermark_ms = a_table(depends_within="1 hour"), 3 * HOUR_MS
    closed, open_, more = (Scope(("a",), Interval(n * HOUR_MS, (n + 1) * HOUR_MS)) for n in (0, 2, 3))
    assert pinned.closed_at([closed, open_]) == EPOCH + timedelta(hours=4)
    assert pinned.closed_at([more, closed, open_]) == EPOCH + timedelta(hours=5)
    assert pinned.closed_at([closed]) is None
