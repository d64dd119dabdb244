"""A plan that was made again, since its rows had moved, against the one that was approved."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tests.tables.declared import a_table
from twofold.batch.plan.plan import Plan, Plans, TableChange, keep_rows, rows_name
from twofold.batch.plan.plan_difference import differs_little, other_rows
from twofold.infra.delta.delta_writer import BEFORE, CHANGE
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.open_platform import Platform

TABLE = "plant.hours"
TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)
Rows = dict[str, tuple[str, int | None, int | None]]
"""Sensor -> change, total before and after."""


def platform(lake: Lake, least: int | None = None) -> Platform:
    return Platform(lambda: None, lake, Registry({}, {TABLE: a_table(approve_above=least)}))  # type: ignore[arg-type, return-value]


def plan(lake: Lake, name: str, rows: Rows, definition: str = "f00d") -> Plan:
    """A plan that is stored with these rows."""
    table = pa.table(
        {
            "sensor": list(rows),
            "hour": [TEN] * len(rows),
            "total": pa.array([before if kind == "delete" else after for kind, before, after in rows.values()]),
            CHANGE: [kind for kind, *_ in rows.values()],
            BEFORE + "total": pa.array([before for _, before, _ in rows.values()], pa.int64()),
        }
    )
    folder = Plans(lake.settings).folder / name
    folder.mkdir(parents=True)
    change = TableChange(
        table=TABLE,
        cause="definition",
        version=1,
        rows_before=9,
        updated=len(rows),
        definition=definition,
        digest=keep_rows(table, folder / rows_name(TABLE)),
    )
    until = datetime.now(UTC) + timedelta(days=1)
    made = Plan(
        id=name, cause="definition", command=["plan", "plant"], created_at=TEN, expires_at=until, changes=[change]
    )
    return Plans(lake.settings).save(made)


APPROVED: Rows = {"a": ("update", 1, 2), "b": ("insert", None, 3), "c": ("delete", 4, None), "d": ("update", 1, 5)}


@pytest.mark.parametrize(
    ("made", "others"),
    [
        (APPROVED, 0),
        ({**APPROVED, "a": ("update", 7, 2)}, 0),  # another row before, the same after
        ({**APPROVED, "a": ("update", 1, 9)}, 1),
        ({**APPROVED, "e": ("insert", None, 1)}, 1),
        ({**APPROVED, "e": ("delete", 1, None)}, 1),
        ({sensor: APPROVED[sensor] for sensor in "ab"}, 2),
        ({**APPROVED, "a": ("delete", 1, None)}, 2),  # is not written, and is removed
    ],
)
def test_the_rows_that_differ_are_counted(lake: Lake, made: Rows, others: int) -> None:
    counts = other_rows(platform(lake), plan(lake, "one", APPROVED), plan(lake, "other", made))
    assert counts == ({TABLE: others} if others else {})


def test_a_table_of_other_code_or_of_one_plan_alone_differs_as_a_whole(lake: Lake) -> None:
    one, other = plan(lake, "one", APPROVED), plan(lake, "other", APPROVED, definition="beef")
    assert other_rows(platform(lake), one, other) == {TABLE: 4}
    assert other_rows(platform(lake), one, replace(one, changes=[])) == {TABLE: 4}
    assert not differs_little(platform(lake), replace(one, changes=[]), {TABLE: 1})


@pytest.mark.parametrize(
    ("changed", "least", "others", "is_little"),
    [(4, None, 20, True), (4, None, 21, False), (4, 30, 30, True), (9_000, None, 90, True), (9_000, None, 91, False)],
)
def test_a_difference_is_little_by_rows_by_share_or_as_declared(
    lake: Lake, changed: int, least: int | None, others: int, is_little: bool
) -> None:
    one = plan(lake, "one", APPROVED)
    approved = replace(one, changes=[replace(one.changes[0], updated=changed)])
    assert differs_little(platform(lake, least), approved, {TABLE: others}) is is_little
