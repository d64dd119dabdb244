"""What the platform remembers of its own work, over crashes, each thing once."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from tests.tables.declared import a_table, a_topic
from twofold.batch.audit.topic_certificates import CERTIFICATES, Block, read_certificate, write_certificate
from twofold.batch.changelog_check import unexplained_changes
from twofold.batch.ledgers import run_ledgers as ledgers_module
from twofold.batch.ledgers.batch_run import record_lost_runs
from twofold.batch.ledgers.causes import CausingRecord
from twofold.batch.ledgers.reconcile_position import POSITIONS, ReconcilePosition
from twofold.batch.ledgers.row_history import read_history
from twofold.batch.ledgers.run_ledgers import CORRECTIONS, EVIDENCE, Ledgers
from twofold.batch.ledgers.run_result import RUNS, RunResult, run_name
from twofold.infra.delta.compaction import compact
from twofold.infra.delta.delta_writer import BEFORE, CHANGE, CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ChangesGone
from twofold.infra.instants import Interval
from twofold.tables.refresh.events import lost_offsets, transaction_offsets
from twofold.tables.refresh.events.lost_offsets import GAPS, Gap
from twofold.tables.refresh.events.transaction_offsets import TRANSACTIONS
from twofold.tables.refresh.scope import Scope

TABLE, TOPIC = "plant.hours", "plant.readings"
HOURS = a_table()
SCHEMA = pa.schema([("sensor", pa.string()), ("hour", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)


@pytest.fixture
def ledgers(lake: Lake) -> Ledgers:
    ledgers = Ledgers(lake)
    ledgers.ensure()
    return ledgers


@pytest.fixture
def hours(lake: Lake) -> Writer:
    lake.ensure(TABLE, SCHEMA, statistics=["hour"])
    return Writer(lake, TABLE)


def rows(lake: Lake, name: str) -> list[dict[str, Any]]:
    return list(pa.table(lake.open(name).scan()).to_pylist())


def counts(**values: int | None) -> pa.Table:
    return pa.Table.from_pylist([{"sensor": s, "hour": TEN, "n": n} for s, n in values.items()], schema=SCHEMA)


def by_stream(writer: Writer, batch: int, table: pa.Table) -> None:
    writer.upsert(table, ["sensor", "hour"], CommitTag(app="stream/1", version=batch, info={"cause": "stream"}))


def by_run(writer: Writer, run: int | str, *changes: tuple[str, str, int | None, int | None]) -> None:
    """Publish (sensor, change, before, after) as a reconcile does."""
    table = pa.table(
        {
            "sensor": [c[0] for c in changes],
            "hour": pa.array([TEN for _ in changes], SCHEMA.field("hour").type),
            "n": pa.array([c[3] for c in changes], pa.int64()),
            CHANGE: [c[1] for c in changes],
            BEFORE + "n": pa.array([c[2] for c in changes], pa.int64()),
        }
    )
    name = run if isinstance(run, str) else f"run-{run}"
    info = {"cause": "late", "run": name, "fingerprint": "f00d", "inputs": {"plant.readings": 12}}
    writer.apply(table, ["sensor", "hour"], CommitTag(app="refresh", version=writer.next_number("refresh"), info=info))


def outcome(run: str = "late-1", **counts: int) -> RunResult:
    return RunResult(table=TABLE, cause="late", run=run, **counts)  # type: ignore[arg-type]


def test_a_table_that_was_never_reconciled_begins_at_the_beginning(ledgers: Ledgers) -> None:
    assert ledgers.position(TABLE) == ReconcilePosition()


def test_the_next_reconcile_begins_where_the_last_one_ended(ledgers: Ledgers) -> None:
    pending = {
        Scope(("a", None, ...), Interval(-5, 7)): 7,
        Scope((1, 2.5, True), None): 0,
        Scope((TEN, date(2013, 1, 1), "a 'quoted' é"), Interval(0, 1)): -1,
        Scope((), Interval(0, 1)): 10**15,
        Scope((Decimal("12345678901234567890.50"), b"\x00\xff"), Interval(0, 1)): 3,
    }
    state = ReconcilePosition(consumed={"plant.readings": 41}, stream="5d9c", pending=pending)
    ledgers.record_run(outcome("late-1"), ReconcilePosition(consumed={"plant.readings": 3}, stream="old"), "f00d")
    ledgers.record_run(outcome("late-2"), state, "f00d")
    assert ledgers.position(TABLE) == state
    assert ledgers.position("plant.other") == ReconcilePosition()


def test_a_run_without_a_state_does_not_move_the_beginning(ledgers: Ledgers) -> None:
    state = ReconcilePosition(consumed={"plant.readings": 41}, stream="5d9c")
    ledgers.record_run(outcome("late-1"), state, "f00d")
    ledgers.record_run(outcome("backfill-1"), None, "f00d")
    assert ledgers.position(TABLE) == state


def test_a_run_is_kept_with_its_counts_once(lake: Lake, ledgers: Ledgers) -> None:
    for _ in range(2):
        ledgers.record_run(
            outcome(touched=1, scopes=2, inserted=3, updated=4, deleted=5, files_written=6), None, "f00d"
        )
    (row,) = rows(lake, RUNS)
    assert (row["table"], row["cause"], row["run"], row["fingerprint"]) == (TABLE, "late", "late-1", "f00d")
    assert [row[c] for c in ("touched", "scopes", "inserted", "updated", "deleted", "files_written")] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def test_evidence_names_the_records_that_forced_a_run_once(lake: Lake, ledgers: Ledgers) -> None:
    evidence = CausingRecord(
        source="plant.readings",
        partition=1,
        offset=42,
        late_by_ms=9_000,
        event_ms=1_356_998_400_000,
        scope={"sensor": "a"},
        start_ms=5,
        end_ms=7,
    )
    for _ in range(2):
        ledgers.record_evidence("late-1", TABLE, [evidence])
    ledgers.record_evidence("late-2", TABLE, [])
    (row,) = rows(lake, EVIDENCE)
    assert (row["source"], row["partition"], row["offset"], row["late_by_ms"]) == ("plant.readings", 1, 42, 9_000)
    assert (json.loads(row["scope"]), row["start_ms"], row["end_ms"]) == ({"sensor": "a"}, 5, 7)
    assert list(ledgers.evidence(TABLE)) == [("late-1", evidence)]
    assert list(ledgers.evidence(TABLE, "late-2")) == []


def test_a_correction_names_exactly_the_records_that_may_affect_its_row(ledgers: Ledgers, hours: Writer) -> None:
    by_stream(hours, 1, counts(a=1, b=1))
    ten_ms = 1_357_034_400_000

    def record(offset: int, sensor: str, start_ms: int | None, end_ms: int | None) -> CausingRecord:
        return CausingRecord(
            source="plant.readings",
            partition=0,
            offset=offset,
            late_by_ms=9_000,
            scope={"sensor": sensor},
            start_ms=start_ms,
            end_ms=end_ms,
        )

    evidence = [
        record(7, "a", ten_ms, ten_ms + 1),
        record(3, "a", None, None),
        record(3, "a", ten_ms, ten_ms + 1),  # one record may touch twice
        record(8, "b", ten_ms, ten_ms + 1),
        record(9, "a", ten_ms + 1, ten_ms + 2),
        record(10, "a", ten_ms - 1, ten_ms),
    ]
    ledgers.record_evidence("run-1", TABLE, evidence)
    ledgers.record_evidence("run-2", TABLE, [record(11, "a", None, None)])
    by_run(hours, 1, ("a", "update", 1, 2))
    ledgers.record_corrections(HOURS)
    (correction,) = ledgers.corrections(TABLE)
    assert [(r["source"], r["offset"], r["late_by_ms"]) for r in correction["evidence"]] == [
        ("plant.readings", 3, 9_000),
        ("plant.readings", 7, 9_000),
    ]
    assert correction["records"] == 2


@pytest.mark.parametrize(("late", "latest_ms"), [((3, 9, 5), 9), ((9, None), None), ((None, 9), None), ((), None)])
def test_a_correction_has_the_lateness_of_its_latest_record_named_or_not(
    ledgers: Ledgers,
    hours: Writer,
    late: tuple[int | None, ...],
    latest_ms: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("twofold.batch.ledgers.causes.LISTED", 1)
    evidence = [
        CausingRecord(source="plant.readings", partition=0, offset=n, late_by_ms=ms) for n, ms in enumerate(late)
    ]
    by_stream(hours, 1, counts(a=1))
    ledgers.record_evidence("run-1", TABLE, evidence)
    by_run(hours, 1, ("a", "update", 1, 2))
    ledgers.record_corrections(HOURS)
    (correction,) = ledgers.corrections(TABLE)
    assert (correction["latest_ms"], correction["records"]) == (latest_ms, len(late))
    assert len(correction["evidence"]) <= 1


def test_a_ledger_of_an_earlier_platform_gets_the_column_that_it_lacks(lake: Lake, hours: Writer) -> None:
    now = ledgers_module.SCHEMAS[CORRECTIONS]
    before = now.remove(now.get_field_index("latest_ms"))
    lake.ensure(CORRECTIONS, before, statistics=["table", "run", "recorded_at"])
    old = pa.Table.from_pylist(
        [{"table": TABLE, "key": "{}", "run": "old", "version": 0, "recorded_at": datetime.now(UTC)}], schema=before
    )
    Writer(lake, CORRECTIONS).append(old, CommitTag(app="old", version=1))
    by_stream(hours, 1, counts(a=1))
    by_run(hours, 1, ("a", "update", 1, 2))
    ledgers = Ledgers(lake)
    ledgers.record_evidence("run-1", TABLE, [CausingRecord(source="plant.readings", offset=1, late_by_ms=7)])
    assert ledgers.record_corrections(HOURS) == 1
    ledgers.record_evidence("run-2", TABLE, [CausingRecord(source="plant.readings", offset=2, late_by_ms=8)])
    by_run(hours, 2, ("a", "update", 2, 3))
    assert ledgers.record_corrections(HOURS) == 1
    assert [(row["run"], row["latest_ms"]) for row in ledgers.corrections(TABLE)] == [
        ("old", None), ("run-1", 7), ("run-2", 8),
    ]  # fmt: skip


def test_a_correction_says_which_versions_of_the_inputs_were_read(ledgers: Ledgers, hours: Writer) -> None:
    by_stream(hours, 1, counts(a=1))
    by_run(hours, 1, ("a", "update", 1, 2))
    ledgers.record_corrections(HOURS)
    (correction,) = ledgers.corrections(TABLE)
    assert json.loads(correction["inputs"]) == {"plant.readings": 12}


def test_corrections_are_what_the_change_feed_says(lake: Lake, ledgers: Ledgers, hours: Writer) -> None:
    by_stream(hours, 1, counts(a=1, b=None))
    by_run(hours, 1, ("a", "update", 1, 2), ("b", "delete", None, None), ("c", "insert", None, 3))
    assert ledgers.record_corrections(HOURS) == 3
    found = {json.loads(row["key"])["sensor"]: row for row in rows(lake, CORRECTIONS)}

    def values(text: str | None) -> object:
        return json.loads(text)["n"] if text else None

    assert {s: (r["change"], values(r["before"]), values(r["after"])) for s, r in found.items()} == {
        "a": ("update", 1, 2),
        "b": ("delete", None, None),
        "c": ("insert", None, 3),
    }
    assert found["b"]["after"] is None
    assert found["c"]["before"] is None
    assert json.loads(found["a"]["key"]) == {"sensor": "a", "hour": "2013-01-01T10:00:00+00:00"}
    assert {(r["cause"], r["run"], r["fingerprint"], r["version"]) for r in found.values()} == {
        ("late", "run-1", "f00d", 2)
    }


def test_a_crash_between_publication_and_ledger_is_caught_up_once(ledgers: Ledgers, hours: Writer) -> None:
    by_stream(hours, 1, counts(a=1))
    by_run(hours, 1, ("a", "update", 1, 2))
    by_run(hours, 2, ("a", "update", 2, 3))
    assert ledgers.record_corrections(HOURS) == 2
    assert ledgers.record_corrections(HOURS) == 0
    by_stream(hours, 2, counts(d=1))
    by_run(hours, 3, ("d", "delete", 1, 1))
    assert ledgers.record_corrections(HOURS) == 1
    assert len(ledgers.corrections(TABLE)) == 3
    assert ledgers.corrections("plant.other") == []


@pytest.mark.parametrize("got_as_far_as_its_corrections", [True, False])
def test_a_run_that_published_and_died_is_noted_by_the_next_one_once(
    lake: Lake, ledgers: Ledgers, hours: Writer, got_as_far_as_its_corrections: bool
) -> None:
    by_stream(hours, 1, counts(a=1, b=1))
    by_run(hours, 1, ("a", "update", 1, 2))
    ledgers.record_corrections(HOURS)
    ledgers.record_run(outcome("run-1", updated=1), None, "f00d")
    by_run(hours, 2, ("a", "update", 2, 3), ("b", "delete", 1, 1), ("c", "insert", None, 7))
    if got_as_far_as_its_corrections:
        ledgers.record_corrections(HOURS)
    for _ in range(2):
        record_lost_runs(lake, ledgers, HOURS)
    counted = ("run", "cause", "inserted", "updated", "deleted", "version_before", "version_after", "fingerprint")
    assert sorted([row[name] for name in counted] for row in rows(lake, RUNS))[1:] == [
        ["run-2", "late", 1, 1, 1, 2, 3, "f00d"],
    ]
    assert len(ledgers.corrections(TABLE)) == 4


def test_removed_change_files_are_named_and_stop_no_reconcile(lake: Lake, ledgers: Ledgers, hours: Writer) -> None:
    by_stream(hours, 1, counts(a=1, b=1))
    by_run(hours, 1, ("a", "update", 1, 2))
    for file in Path(lake.uri(TABLE)).glob("_change_data/*"):
        file.unlink()
    by_run(hours, 2, ("b", "update", 1, 3))
    record_lost_runs(lake, ledgers, HOURS)
    assert sorted((row["run"], row["updated"]) for row in rows(lake, RUNS)) == [("run-1", 0), ("run-2", 1)]
    assert [row["run"] for row in ledgers.corrections(TABLE)] == ["run-2"]
    with pytest.raises(ChangesGone, match=r"what the commits 0 to 3 changed cannot be read: .* a VACUUM"):
        unexplained_changes(lake, HOURS)
    with pytest.raises(ChangesGone, match=r"plant\.hours: what the commits 0 to 3 changed cannot be read"):
        read_history(lake, HOURS, {"sensor": "a", "hour": TEN})


@pytest.mark.parametrize("changed", [(pa.int64(), pa.string()), (pa.string(), pa.int64()), (pa.bool_(), pa.string())])
def test_a_table_is_verified_after_the_type_of_its_columns_changed(
    lake: Lake, ledgers: Ledgers, changed: tuple[pa.DataType, pa.DataType]
) -> None:
    """`sensor`, of the key, and `n` change; corrections and changes of the stream are from before, too."""
    name, table = "plant.typed", replace(HOURS, name="typed")
    old, new = (pa.schema([("sensor", kind), SCHEMA.field("hour"), ("n", kind)]) for kind in changed)
    values = {pa.int64(): [1, 2, 3], pa.string(): ["1", "2", "3"], pa.bool_(): [True, False, None]}
    one, two, three = values[changed[0]]
    lake.ensure(name, old, statistics=[])
    writer = Writer(lake, name)
    by_stream(writer, 1, pa.Table.from_pylist([{"sensor": s, "hour": TEN, "n": s} for s in (one, two)], schema=old))
    late = pa.Table.from_pylist([{"sensor": one, "hour": TEN, "n": three}], schema=old)
    late = late.append_column(CHANGE, pa.array(["update"])).append_column(BEFORE + "n", pa.array([one], changed[0]))
    writer.apply(late, ["sensor", "hour"], CommitTag(app="refresh", version=1, info={"cause": "late", "run": "run-1"}))
    ledgers.record_corrections(table)
    assert unexplained_changes(lake, table) == 0

    of_new = [{"sensor": value, "hour": TEN, "n": value} for value in values[changed[1]][:2]]
    said = {"userMetadata": json.dumps({"cause": "definition", "run": "run-2"})}
    how = CommitProperties(custom_metadata=said)
    rows = pa.Table.from_pylist(of_new, schema=new)
    write_deltalake(lake.open(name), rows, mode="overwrite", schema_mode="overwrite", commit_properties=how)
    ledgers.record_corrections(table)
    assert unexplained_changes(lake, table) == 0
    write_deltalake(lake.open(name), rows.slice(0, 1), mode="overwrite")
    assert unexplained_changes(lake, table) == 1


def test_the_streams_own_commits_and_maintenance_are_no_corrections(
    lake: Lake, ledgers: Ledgers, hours: Writer
) -> None:
    by_stream(hours, 1, counts(a=1))
    by_stream(hours, 2, counts(a=2))
    compact(lake, TABLE)
    assert ledgers.record_corrections(HOURS) == 0


def test_commits_without_corrections_are_not_looked_through_for_ever(
    lake: Lake, ledgers: Ledgers, hours: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers_module, "_COMMITS_READ_AGAIN", 3)
    for batch in range(1, 6):
        by_stream(hours, batch, counts(a=batch))
    assert ledgers.record_corrections(HOURS) == 0
    assert lake.open(CORRECTIONS).transaction_version(f"corrections/{TABLE}") == lake.version(TABLE)
    by_run(hours, 1, ("a", "update", 5, 6))
    assert ledgers.record_corrections(HOURS) == 1
    assert len(ledgers.corrections(TABLE)) == 1


def test_corrections_hold_every_type_as_json(lake: Lake, ledgers: Ledgers) -> None:
    schema = pa.schema(
        [
            ("sensor", pa.string()),
            ("price", pa.decimal128(10, 2)),
            ("ratio", pa.float64()),
            ("tags", pa.list_(pa.string())),
            ("raw", pa.binary()),
        ]
    )
    lake.ensure(TABLE, schema, statistics=["sensor"])
    row = {"sensor": "a", "price": Decimal("1.50"), "ratio": float("nan"), "tags": ["x"], "raw": b"\xff"}
    Writer(lake, TABLE).append(
        pa.Table.from_pylist([row], schema=schema),
        CommitTag(app="refresh", version=1, info={"run": "r", "cause": "late"}),
    )
    assert (
        ledgers.record_corrections(
            a_table(primary_key=["sensor"], event_time=None, closes_at=None, depends_within=None)
        )
        == 1
    )

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    after = json.loads(rows(lake, CORRECTIONS)[0]["after"], parse_constant=refuse)
    assert after == {"sensor": "a", "price": "1.50", "ratio": "NaN", "tags": ["x"], "raw": "ff"}


def data_files(lake: Lake, name: str) -> list[Path]:
    return [Path(lake.uri(name), path) for path in pa.table(lake.open(name).get_add_actions())["path"].to_pylist()]


def test_a_question_about_a_run_opens_no_file_of_older_ones(lake: Lake, ledgers: Ledgers, hours: Writer) -> None:
    old = datetime(2013, 1, 1, tzinfo=UTC)
    record = CausingRecord(source="plant.readings", partition=0, offset=7, late_by_ms=9_000)
    for name in (RUNS, EVIDENCE, CORRECTIONS):
        row = {"table": TABLE, "run": "late-20130101T000000.000000Z", "version": 1, "scope": "{}", "recorded_at": old}
        table = pa.Table.from_pylist([row], schema=pa.schema(lake.open(name).schema()))
        Writer(lake, name).append(table, CommitTag(app="old", version=1))
        for file in data_files(lake, name):
            file.unlink()
    run = run_name("late")
    by_stream(hours, 1, counts(a=1))
    ledgers.record_evidence(run, TABLE, [record])
    by_run(hours, run, ("a", "update", 1, 2))
    assert ledgers.record_corrections(HOURS) == 1
    ledgers.record_run(outcome(run), None, "f00d")
    assert list(ledgers.evidence(TABLE, run)) == [(run, record)]
    assert [c["run"] for c in ledgers.corrections(TABLE, after=1)] == [run]


def test_no_run_leaves_a_transaction_id_of_its_own(lake: Lake, ledgers: Ledgers) -> None:
    for n in range(3):
        ledgers.record_evidence(f"late-{n}", TABLE, [CausingRecord(source="plant.readings")])
        ledgers.record_run(outcome(f"late-{n}"), ReconcilePosition(stream="5d9c"), "f00d")
    for name in (RUNS, EVIDENCE, POSITIONS):
        apps = [app for c in lake.commits(name, -1, lake.version(name)) for app in c.transactions]
        assert (len(apps), len(set(apps))) == (3, 1)


def test_the_position_of_a_table_is_one_row(lake: Lake, ledgers: Ledgers) -> None:
    for n in range(3):
        ledgers.record_run(
            outcome(f"late-{n}"), ReconcilePosition(consumed={"plant.readings": n}, stream="5d9c"), "f00d"
        )
    (row,) = rows(lake, POSITIONS)
    assert (row["table"], row["consumed"]) == (TABLE, '{"plant.readings": 2}')


def note(lake: Lake, name: str, n: int) -> None:
    """Leave something in a ledger, as whoever keeps it does."""
    ledgers = Ledgers(lake)
    run = f"late-{n}"
    if name == RUNS:
        ledgers.record_run(outcome(run), None, "f00d")
    elif name == EVIDENCE:
        ledgers.record_evidence(run, TABLE, [CausingRecord(source="plant.readings")])
    elif name == CORRECTIONS:
        by_run(Writer(lake, TABLE), run, ("a", "update", n, n + 1))
        ledgers.record_corrections(HOURS)
    elif name == POSITIONS:
        ledgers.move({TABLE: ReconcilePosition(stream=str(n))})
    elif name == CERTIFICATES:
        block = Block(partition=0, start=n, end=n + 1, events=1, quarantined=0, total="1", xor=1)
        write_certificate(lake, a_topic(), run, (n, n), [block])
    elif name == TRANSACTIONS:
        transaction_offsets.record(lake, TOPIC, "log", {0: [(2 * n, 2 * n + 1)]})
    elif name == GAPS:
        gap = {"topic": TOPIC, "partition": 0, "start": 2 * n, "end": 2 * n + 1, "why": "", "recorded_at": TEN}
        lost_offsets.record(lake, [Gap(**gap)])


@pytest.mark.parametrize("name", [RUNS, EVIDENCE, CORRECTIONS, POSITIONS, CERTIFICATES, TRANSACTIONS, GAPS])
def test_every_ledger_is_kept_small_by_those_who_write_it(
    lake: Lake, ledgers: Ledgers, hours: Writer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.infra.delta.delta_writer._TIDY_EVERY", 8)
    lost_offsets.ensure(lake)
    transaction_offsets.ensure(lake)
    by_stream(hours, 1, counts(a=0))
    for n in range(10):
        note(lake, name, n)
    assert len(rows(lake, name)) == (1 if name == POSITIONS else 10)
    assert len(data_files(lake, name)) <= 3
    properties = lake.open(name).metadata().configuration
    assert properties["delta.enableChangeDataFeed"] == "false"


def test_a_certificate_is_kept_while_its_versions_can_be_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(2):
        note(lake, CERTIFICATES, n)
    assert {row["run"] for row in rows(lake, CERTIFICATES)} == {"late-0", "late-1"}
    monkeypatch.setattr("twofold.batch.audit.topic_certificates._KEPT_MS", 0)
    note(lake, CERTIFICATES, 2)
    assert {row["run"] for row in rows(lake, CERTIFICATES)} == {"late-2"}
    found = read_certificate(lake, a_topic())
    assert found is not None
    assert (found[0], [block.start for block in found[1]]) == ((2, 2), [2])
    assert read_certificate(lake, a_topic(), version=1) is None
