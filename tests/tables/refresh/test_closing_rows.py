"""A row may stay open for as long as late records of it are remembered, and no longer."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.tables.declared import a_table
from twofold.infra.errors import BadDeclaration
from twofold.tables.refresh.derived_rows import require_closing

TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)
UTC_TIME = pa.timestamp("us", "UTC")


def rows(*open_for: timedelta | None) -> pa.Table:
    return pa.table(
        {
            "sensor": [f"s{n}" for n in range(len(open_for))],
            "hour": pa.array([TEN] * len(open_for), UTC_TIME),
            "closes_at": pa.array([None if t is None else TEN + t for t in open_for], UTC_TIME),
        }
    )


def test_rows_that_close_within_the_lookback_pass() -> None:
    table = a_table(depends_within="1 hour")
    require_closing(table, rows(timedelta(hours=1), timedelta(0), None))
    require_closing(table, rows())


def test_a_row_that_closes_later_is_named_with_what_to_do() -> None:
    with pytest.raises(
        BadDeclaration, match=r"'s1'.* closes 1:00:00\.000001 after .* at most depends_within, 1 hour"
    ) as error:
        require_closing(a_table(depends_within="1 hour"), rows(timedelta(hours=1), timedelta(hours=1, microseconds=1)))
    assert "lengthen depends_within" in (error.value.hint or "")


@pytest.mark.parametrize(("depends_within", "passes"), [("2 days", True), ("1 day", False)])
def test_a_row_may_be_dated_by_a_day(depends_within: str, passes: bool) -> None:
    columns: dict[str, Any] = {"sensor": ["a"], "day": pa.array([date(2013, 1, 1)], pa.date32())}
    row = pa.table({**columns, "closes_at": pa.array([TEN + timedelta(days=1)], UTC_TIME)})
    table = a_table(primary_key=["sensor", "day"], event_time="day", depends_within=depends_within)
    if passes:
        require_closing(table, row)
        return
    with pytest.raises(BadDeclaration, match="1 day, 10:00:00"):
        require_closing(table, row)
