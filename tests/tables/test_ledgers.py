"""What the platform remembers of its own work, over crashes, each thing once."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tables import ledgers as ledgers_module
from tables.lake import Lake
from tables.ledgers import CORRECTIONS, EVIDENCE, RUNS, Evidence, Ledgers, Reconciled
from tables.outcome import Outcome
from tables.scope import Interval, Scope
from tables.writer import BEFORE, CHANGE, Stamp, Writer

TABLE = "plant.hours"
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
    writer.upsert(table, ["sensor", "hour"], Stamp(app="stream/1", version=batch, info={"cause": "stream"}))


def by_run(writer: Writer, number: int, *changes: tuple[str, str, int | None, int | None]) -> None:
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
    info = {"cause": "late", "run": f"run-{number}", "fingerprint": "f00d"}
    writer.apply(table, ["sensor", "hour"], Stamp(app="refresh", version=number, info=info))


def outcome(run: str = "late-1", **counts: int) -> Outcome:
    return Outcome(table=TABLE, cause="late", run=run, **counts)  # type: ignore[arg-type]


def test_a_table_that_was_never_reconciled_begins_at_the_beginning(ledgers: Ledgers) -> None:
    assert ledgers.reconciled(TABLE) == Reconciled()


def test_the_next_reconcile_begins_where_the_last_one_ended(ledgers: Ledgers) -> None:
    pending = [
        Scope(("a", None, ...), Interval(-5, 7)),
        Scope((1, 2.5, True), None),
        Scope((TEN, date(2013, 1, 1), "a 'quoted' é"), Interval(0, 1)),
        Scope((), Interval(0, 1)),
    ]
    state = Reconciled(consumed={"plant.readings": 41}, stream="5d9c", pending=pending)
    ledgers.record_run(outcome("late-1"), Reconciled(consumed={"plant.readings": 3}, stream="old"), "f00d")
    ledgers.record_run(outcome("late-2"), state, "f00d")
    assert ledgers.reconciled(TABLE) == state
    assert ledgers.reconciled("plant.other") == Reconciled()


def test_a_run_without_a_state_does_not_move_the_beginning(ledgers: Ledgers) -> None:
    state = Reconciled(consumed={"plant.readings": 41}, stream="5d9c", pending=[])
    ledgers.record_run(outcome("late-1"), state, "f00d")
    ledgers.record_run(outcome("backfill-1"), None, "f00d")
    assert ledgers.reconciled(TABLE) == state


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
    evidence = Evidence("plant.readings", 1, 42, 9_000, 1_356_998_400_000, ("a", TEN, ...))
    for _ in range(2):
        ledgers.record_evidence("late-1", TABLE, [evidence])
    ledgers.record_evidence("late-2", TABLE, [])
    (row,) = rows(lake, EVIDENCE)
    assert (row["source"], row["partition"], row["offset"], row["late_by_ms"]) == ("plant.readings", 1, 42, 9_000)
    assert json.loads(row["scope"]) == ["a", "2013-01-01 10:00:00+00:00", None]


def test_corrections_are_what_the_change_feed_says(lake: Lake, ledgers: Ledgers, hours: Writer) -> None:
    by_stream(hours, 1, counts(a=1, b=None))
    by_run(hours, 1, ("a", "update", 1, 2), ("b", "delete", None, None), ("c", "insert", None, 3))
    assert ledgers.record_corrections(TABLE, ["sensor", "hour"]) == 3
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


def test_a_crash_between_publication_and_ledger_is_caught_up_and_nothing_is_kept_twice(
    ledgers: Ledgers, hours: Writer
) -> None:
    by_stream(hours, 1, counts(a=1))
    by_run(hours, 1, ("a", "update", 1, 2))
    by_run(hours, 2, ("a", "update", 2, 3))
    assert ledgers.record_corrections(TABLE, ["sensor", "hour"]) == 2
    assert ledgers.record_corrections(TABLE, ["sensor", "hour"]) == 0
    by_stream(hours, 2, counts(d=1))
    by_run(hours, 3, ("d", "delete", 1, 1))
    assert ledgers.record_corrections(TABLE, ["sensor", "hour"]) == 1
    assert ledgers.corrected(TABLE) == 3
    assert ledgers.corrected("plant.other") == 0


def test_the_streams_own_commits_and_maintenance_are_no_corrections(
    lake: Lake, ledgers: Ledgers, hours: Writer
) -> None:
    by_stream(hours, 1, counts(a=1))
    by_stream(hours, 2, counts(a=2))
    lake.tidy(TABLE)
    assert ledgers.record_corrections(TABLE, ["sensor", "hour"]) == 0


def test_commits_without_corrections_are_not_looked_through_for_ever(
    lake: Lake, ledgers: Ledgers, hours: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers_module, "_COMMITS_READ_AGAIN", 3)
    for batch in range(1, 6):
        by_stream(hours, batch, counts(a=batch))
    assert ledgers.record_corrections(TABLE, ["sensor", "hour"]) == 0
    assert lake.open(CORRECTIONS).transaction_version(f"corrections/{TABLE}") == lake.version(TABLE)
    by_run(hours, 1, ("a", "update", 5, 6))
    assert ledgers.record_corrections(TABLE, ["sensor", "hour"]) == 1
    assert ledgers.corrected(TABLE) == 1


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
        pa.Table.from_pylist([row], schema=schema), Stamp(app="refresh", version=1, info={"run": "r", "cause": "late"})
    )
    assert ledgers.record_corrections(TABLE, ["sensor"]) == 1

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    after = json.loads(rows(lake, CORRECTIONS)[0]["after"], parse_constant=refuse)
    assert after == {"sensor": "a", "price": "1.50", "ratio": "NaN", "tags": ["x"], "raw": "ff"}
