"""The ledger of runs gives each table's last audit and what was found since."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from twofold.batch.ledgers.audit_history import last_audits
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import RUNS, Audited, RunResult
from twofold.infra.delta.lake import Lake

TABLE = "plant.hours"
MIDNIGHT = datetime(2013, 1, 1, tzinfo=UTC)


@pytest.fixture
def ledgers(lake: Lake) -> Ledgers:
    ledgers = Ledgers(lake)
    ledgers.ensure()
    return ledgers


def runs(lake: Lake, *told: dict[str, Any]) -> None:
    """Runs of the table, one on each day from the first of 2013 on."""
    schema = pa.schema(lake.open(RUNS).schema())
    rows = [
        {"run": f"r{n}", "table": TABLE, "recorded_at": MIDNIGHT + timedelta(days=n), "unexplained": 0} | run
        for n, run in enumerate(told)
    ]
    write_deltalake(lake.uri(RUNS), pa.Table.from_pylist(rows, schema=schema), mode="append")


def part(turn: int, of: int, unexplained: int = 0) -> dict[str, Any]:
    return {"cause": "audit", "turn": turn, "turns": of, "rows": 10, "unexplained": unexplained}


def repair(unexplained: int = 0) -> dict[str, Any]:
    return {"cause": "repair", "unexplained": unexplained}


def test_an_audit_is_kept_with_all_that_it_found(lake: Lake, ledgers: Ledgers) -> None:
    found = {"rows": 97, "buckets": 40, "differing": 2, "excused": 1, "unexplained": 3, "seconds": 1.5}
    ledgers.record_audit(Audited(table=TABLE, run="audit-1", turn=3, of=20, version=8, **found), "f00d")  # type: ignore[arg-type]
    (row,) = pa.table(lake.open(RUNS).scan()).to_pylist()
    assert {name: row[name] for name in found} == found
    assert (row["run"], row["cause"], row["turn"], row["turns"], row["version_after"]) == ("audit-1", "audit", 3, 20, 8)
    assert ledgers.position(TABLE).consumed == {}, "an audit is no reconcile"
    audit = last_audits(lake)[TABLE]
    assert (audit.turn, audit.of, audit.rows, audit.unexplained, audit.all_since) == (3, 20, 97, 3, None)


def test_what_was_never_audited_is_not_reported(lake: Lake, ledgers: Ledgers) -> None:
    assert last_audits(lake) == {}
    ledgers.record_run(RunResult(table=TABLE, cause="repair", run="repair-1"), None, "f00d")
    assert last_audits(lake) == {}


def test_all_rows_were_looked_at_since_the_oldest_newest_turn(lake: Lake, ledgers: Ledgers) -> None:
    runs(lake, part(0, 3), part(1, 3))
    assert last_audits(lake)[TABLE].all_since is None
    runs(
        lake,
        {"recorded_at": MIDNIGHT + timedelta(days=2)} | part(2, 3),
        {"recorded_at": MIDNIGHT + timedelta(days=3)} | part(0, 3),
    )
    assert last_audits(lake)[TABLE].all_since == MIDNIGHT + timedelta(days=1)


def test_an_audit_of_all_rows_takes_every_turn(lake: Lake, ledgers: Ledgers) -> None:
    runs(lake, part(0, 3), part(0, 1), part(1, 3))
    audit = last_audits(lake)[TABLE]
    assert (audit.at, audit.all_since) == (MIDNIGHT + timedelta(days=2), MIDNIGHT + timedelta(days=1))


@pytest.mark.parametrize(
    ("told", "unexplained"),
    [
        ([part(0, 3, 2), part(1, 3), part(2, 3, 1)], 3),
        ([part(0, 3, 2), part(1, 3), part(0, 3)], 0),
        ([part(0, 3, 2), repair()], 0),
        ([part(0, 3, 2), repair(1)], 1),
        ([part(0, 3, 2), repair(), part(0, 3, 1)], 1),
        ([part(0, 3, 2), part(0, 1)], 0),
        ([part(0, 1, 2), part(1, 3)], 2),
    ],
)
def test_a_finding_stays_until_it_is_audited_again_or_repaired(
    lake: Lake, ledgers: Ledgers, told: list[dict[str, Any]], unexplained: int
) -> None:
    runs(lake, *told)
    assert last_audits(lake)[TABLE].unexplained == unexplained
