"""Which records can have changed which rows, found without a look at each pair."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from tests.tables.declared import a_table
from twofold.batch.ledgers.causes import CausingRecord, Changed, ChangedRows, is_held, span_of
from twofold.infra.instants import epoch_ms
from twofold.tables.refresh.json_values import to_plain_json

START = datetime(2024, 1, 1, tzinfo=UTC)
START_MS = epoch_ms(START) or 0
HOUR_MS = 3_600_000
PLAIN, LONG, TIMELESS = (
    a_table(),
    a_table(ends_at="closes_at", closes_at=None),
    a_table(event_time=None, closes_at=None, depends_within=None),
)


def row(sensor: str | None, hour: int, hours: int | None) -> dict[str, Any]:
    starts = START + timedelta(hours=hour)
    return {"sensor": sensor, "hour": starts, "closes_at": hours and starts + timedelta(hours=hours)}


def changed(table: Any, rows: list[dict[str, Any]]) -> ChangedRows:
    return ChangedRows(Changed(str(n), to_plain_json(one), *span_of(table, one)) for n, one in enumerate(rows))


@pytest.mark.parametrize("table", [PLAIN, LONG, TIMELESS], ids=["of an instant", "of a time", "of no time"])
def test_the_rows_that_a_record_can_have_changed_are_those_that_it_holds(table: Any) -> None:
    chance = Random(0)
    rows = [
        row(chance.choice(["a", "b", None]), chance.randrange(50), chance.choice([1, 2, 30, None])) for _ in range(200)
    ]
    index, met = changed(table, rows), 0
    for offset in range(300):
        start_ms = chance.choice([None, START_MS + chance.randrange(-5, 60) * HOUR_MS])
        scope = chance.choice([{}, {"sensor": "a"}, {"sensor": None}, {"sensor": "z"}])
        end_ms = start_ms and start_ms + chance.randrange(5) * HOUR_MS
        e = CausingRecord(source="plant.readings", offset=offset, scope=scope, start_ms=start_ms, end_ms=end_ms)
        held = {str(n) for n, one in enumerate(rows) if is_held(table, one, e)}
        assert index.keys_of(e) == held
        met += bool(held)
    assert met > 50


def test_a_row_names_the_first_of_its_records_and_counts_all_of_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.batch.ledgers.causes.LISTED", 2)
    index = changed(PLAIN, [row("a", 3, 1), row("b", 3, 1)])
    places = [(0, 5), (0, 5), (0, 6), (1, 5), (1, 6)]
    evidence = [
        CausingRecord(source="r", partition=p, offset=o, late_by_ms=7, scope={"sensor": "a"}) for p, o in places
    ]
    causes = index.causes(evidence)
    assert set(causes) == {"0"}
    assert causes["0"].count == 4
    assert [(r["partition"], r["offset"], r["late_by_ms"]) for r in causes["0"].records] == [(0, 5, 7), (0, 6, 7)]


def test_many_records_are_no_look_at_each_pair() -> None:
    looks: dict[str, int] = defaultdict(int)
    rows = [row("a", hour, 1) for hour in range(1_000)]
    index = changed(PLAIN, rows)
    for n in range(1_000):
        start_ms = START_MS + n * HOUR_MS
        e = CausingRecord(source="r", offset=n, scope={"sensor": "a"}, start_ms=start_ms, end_ms=start_ms + HOUR_MS)
        index.keys_of(e)
        looks["rows"] += len(next(iter(index._by_columns[("sensor",)].values())).near(e))
    assert looks["rows"] == 1_000
