"""Proofs by day: of several runs of a day the last one decides, and a share of the rows is not all of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from tests.status.test_fold import append
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import RUNS
from twofold.infra.delta.lake import Lake
from twofold.status.proofs import Proof, proof_days

NOON = datetime(2013, 1, 5, 12, tzinfo=UTC)


def test_the_last_run_of_a_day_decides(lake: Lake) -> None:
    assert proof_days(lake, NOON) == {}
    Ledgers(lake).ensure()
    runs: list[tuple[Any, ...]] = [
        ("audit", NOON - timedelta(days=9), 7, 7, 1),
        ("audit", NOON, 40, 3, 1),
        ("audit", NOON + timedelta(hours=1), 10, 2, 4),
        ("repair", NOON + timedelta(hours=2), None, 0, None),
        ("late", NOON + timedelta(hours=3), None, 9, None),
        ("audit_log", NOON + timedelta(hours=4), 90, 2, 1),
        ("audit", NOON + timedelta(days=1), 10, 0, 4),
    ]
    causes, ats, rows, unexplained, turns = (list(column) for column in zip(*reversed(runs), strict=True))
    append(
        lake, RUNS, 1, pa.schema(lake.open(RUNS).schema()), table=["plant.hours"] * len(runs), cause=causes,
        recorded_at=ats, rows=rows, unexplained=unexplained, turns=turns,
    )  # fmt: skip
    assert proof_days(lake, NOON - timedelta(hours=12)) == {
        ("plant.hours", "audit_log"): {
            date(2013, 1, 5): Proof(audits=1, repairs=0, rows=90, unexplained=2, is_whole=True)
        },
        ("plant.hours", "audit"): {
            date(2013, 1, 5): Proof(audits=2, repairs=1, rows=50, unexplained=0, is_whole=True),
            date(2013, 1, 6): Proof(audits=1, repairs=0, rows=10, unexplained=0, is_whole=False),
        },
    }
