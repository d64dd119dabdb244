"""Rows that late records would have left wrong: by week and size of error, and which another delay would have saved."""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.status.test_fold import append
from twofold.batch.ledgers.run_ledgers import CORRECTIONS, Ledgers
from twofold.infra.delta.lake import Lake
from twofold.status.late_cost import Correction, corrections_of, late_corrections, late_cost

AT = datetime(2013, 1, 10, 12, tzinfo=UTC)  # a Thursday
MONDAY = date(2013, 1, 7)
AFTER = AT + timedelta(seconds=1)


def correction(
    before: Any = None, after: Any = None, *, late: tuple[int | None, ...] = (7,), **facts: Any
) -> Correction:
    change = "insert" if before is None else "delete" if after is None else "update"
    records = [{"source": "plant.readings", "partition": 0, "offset": n, "late_by_ms": ms} for n, ms in enumerate(late)]
    usual: dict[str, Any] = {"cause": "late", "run": "late-1", "version": 3, "at": AT, "count": len(late)}
    return Correction(
        key={"sensor": "a"}, change=change, before=before, after=after, records=records, **{**usual, **facts}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "size"),
    [
        (None, {"n": 1}, "missing"),
        ({"n": 1}, None, "extra"),
        ({"n": 89}, {"n": 100}, "over 10 %"),
        ({"n": 90}, {"n": 100}, "1 to 10 %"),
        ({"n": 99}, {"n": 100}, "1 to 10 %"),
        ({"n": 99.5}, {"n": 100.0}, "under 1 %"),
        ({"n": 99.5, "m": 1}, {"n": 100.0, "m": 2}, "over 10 %"),
        ({"n": 3}, {"n": 0}, "over 10 %"),
        ({"n": -99.5}, {"n": -100}, "under 1 %"),
        ({"who": "x", "n": 1}, {"who": "y", "n": 1}, "other"),
        ({"n": None}, {"n": 1}, "other"),
        ({"is": True}, {"is": False}, "other"),
    ],
)
def test_the_size_of_an_error_is_that_of_its_most_changed_number(before: Any, after: Any, size: str) -> None:
    assert correction(before, after).size == size


def test_the_key_is_no_change() -> None:
    assert correction(None, {"sensor": "a", "n": 1}).changed == ["n"]
    assert correction({"sensor": "a", "n": 1, "m": 2}, {"sensor": "a", "n": 2, "m": 2}).changed == ["n"]


def test_rows_are_counted_by_week_and_weeks_without_one_too() -> None:
    some = [
        correction({"n": 1}, {"n": 2}),
        correction(None, {"n": 2}, at=AT - timedelta(days=14)),
        correction({"n": 1}, {"n": 2}, cause="upstream"),
        correction({"n": 1}, {"n": 2}, cause="replay"),
    ]
    cost = late_cost(some, AT - timedelta(days=14), AT)
    assert {week: dict(sizes) for week, sizes in cost.weeks.items()} == {
        MONDAY - timedelta(days=14): {"missing": 1},
        MONDAY - timedelta(days=7): {},
        MONDAY: {"over 10 %": 1},
    }
    assert (cost.rows, cost.upstream, cost.rows_of("missing"), cost.rows_of("missing", "over 10 %")) == (2, 1, 1, 2)


def test_a_delay_saves_a_row_if_all_its_records_are_known_and_less_late() -> None:
    some = [
        correction(late=(5, 9)),
        correction(late=(10,)),
        correction(late=(3,), count=2),  # the other record is not named
        correction(late=(3, None)),
        correction(late=()),
        correction(late=(3,), count=200, latest_ms=10),
    ]
    cost = late_cost(some, AT, AT)
    assert [cost.still_wrong(ms) for ms in (0, 9, 10, 11)] == [6, 6, 5, 3]


def test_what_a_delay_saves_is_what_counting_each_row_gives() -> None:
    chance = random.Random(4)
    lateness = [tuple(chance.randint(1, 50) for _ in range(chance.randint(1, 4))) for _ in range(200)]
    cost = late_cost([correction(late=late) for late in lateness], AT, AT)
    for delay in range(0, 60, 7):
        assert cost.still_wrong(delay) == sum(1 for late in lateness if any(ms >= delay for ms in late))


def test_corrections_are_read_of_one_table_since_a_moment(lake: Lake) -> None:
    assert corrections_of(lake, "plant.hours", AT, AFTER) == []
    assert late_corrections(lake, AT, AFTER) == {}
    Ledgers(lake).ensure()
    schema = pa.schema(lake.open(CORRECTIONS).schema())
    record = {"source": "plant.readings", "partition": 1, "offset": 8, "late_by_ms": 9}
    append(
        lake, CORRECTIONS, 1, schema,
        table=["plant.hours", "plant.hours", "plant.days", "plant.hours", "plant.days"],
        key=[json.dumps({"sensor": name}) for name in "abcde"],
        change=["update"] * 5, before=['{"n": 1}'] * 5, after=['{"n": 2}'] * 5,
        cause=["late", "late", "late", "upstream", "late"], run=["r"] * 5, version=[4, 3, 1, 5, 2],
        recorded_at=[AT, AT - timedelta(days=1), AT, AT, AT], evidence=[[record]] * 5, records=[1] * 5,
    )  # fmt: skip
    found = corrections_of(lake, "plant.hours", AT, AFTER)
    assert [(one.key, one.version, one.late_by_ms) for one in found] == [
        ({"sensor": "a"}, 4, 9),
        ({"sensor": "d"}, 5, 9),
    ]
    assert late_corrections(lake, AT, AFTER) == {"plant.days": 2, "plant.hours": 1}
    assert corrections_of(lake, "plant.hours", AT, AT) == []
    assert late_corrections(lake, AT, AT) == {}


def test_corrections_of_an_earlier_platform_are_read(lake: Lake) -> None:
    Ledgers(lake).ensure()
    now = pa.schema(lake.open(CORRECTIONS).schema())
    shutil.rmtree(lake.uri(CORRECTIONS))
    before = now.remove(now.get_field_index("latest_ms"))
    lake.ensure(CORRECTIONS, before, statistics=["table"])
    record = {"source": "plant.readings", "partition": 1, "offset": 8, "late_by_ms": 9}
    append(
        lake, CORRECTIONS, 1, before, table=["plant.hours"], key=["{}"], cause=["late"], run=["r"], version=[4],
        recorded_at=[AT], evidence=[[record]], records=[1],
    )  # fmt: skip
    assert [one.late_by_ms for one in corrections_of(lake, "plant.hours", AT, AFTER)] == [9]
