"""The days of tables, as the form of a backfill gets them from the watch of the stream."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from twofold.dags.operators.closed_days import Days, closed_days, keep_closed_days, read_closed_days
from twofold.infra.project.settings import Settings

FIRST, SECOND, THIRD = date(2013, 1, 1), date(2013, 1, 2), date(2013, 1, 3)


def status(oldest: str | None, newest: str | None, watermark: str | None = None) -> Any:
    return {
        "queries": [{"domain": "flights", "query": "hours", "watermark": watermark}],
        "tables": [
            {"name": "flights.hours", "oldest": oldest, "newest": newest},
            {"name": "shop.hours", "oldest": "2020-01-01", "newest": "2020-01-01"},
        ],
    }


@pytest.mark.parametrize(
    ("watermark", "closed"),
    [
        (None, THIRD),
        ("2013-01-03T05:00:00+00:00", SECOND),
        ("2013-01-03T00:00:00+00:00", SECOND),
        ("2013-01-09T05:00:00+00:00", THIRD),
        ("2013-01-01T05:00:00+00:00", FIRST),
    ],
    ids=["never-open", "in-the-day", "at-midnight", "long-closed", "none-closed"],
)
def test_a_day_is_closed_once_the_watermark_has_passed_its_end(watermark: str | None, closed: date) -> None:
    seen = status("2013-01-01T07:00:00+00:00", "2013-01-03T23:00:00+00:00", watermark)
    assert closed_days(seen, "flights") == {"flights.hours": Days(FIRST, THIRD, closed)}


def test_a_table_whose_rows_have_no_time_has_no_days() -> None:
    assert closed_days(status(None, None), "flights") == {}


def test_the_form_gets_the_days_that_were_seen_last(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert read_closed_days(settings, "flights") == {}
    for newest in ("2013-01-02", "2013-01-03"):  # of a table by day they are dates
        keep_closed_days(settings, status("2013-01-01", newest), "flights")
    assert read_closed_days(settings, "flights") == {"flights.hours": Days(FIRST, THIRD, THIRD)}
    assert read_closed_days(settings, "shop") == {}
