"""Numbers over time and the sources of columns, as the pages of topics, tables and columns show them."""

from __future__ import annotations

from datetime import UTC, datetime

from twofold.features.page.tests.server.test_app import page
from twofold.features.page.tests.small_platform import BROKEN, DAYS, HOURS, READINGS, saved
from twofold.infra.project.settings import Settings
from twofold.status.parts.series import SeriesPoint, SeriesUpdate
from twofold.status.store import Store


def test_what_changed_over_time_is_what_the_store_has(settings: Settings) -> None:
    now = saved(settings)
    at_ms = int(now.at.timestamp() * 1_000)
    hour_ago = at_ms - 3_600_000
    table = [
        (hour_ago, SeriesPoint(written=30, freshness_s=1.25, rows=900)),
        (at_ms, SeriesPoint(written=6, corrected=2)),
    ]
    lateness = {"0": 90, "1000": 5, "3600000": 4, "86400000": 1}
    topic = [(hour_ago, SeriesPoint(produced=1_000, ingested=400, lag=600, at_ms=hour_ago, lateness=lateness))]
    now = SeriesPoint(produced=1_360, ingested=1_000, lag=360, at_ms=at_ms)
    Store(settings).save({}, updates={
        HOURS: SeriesUpdate(after=None, commits=table, sample=SeriesPoint(rows=908)),
        READINGS: SeriesUpdate(after=None, commits=topic, sample=now),
    })  # fmt: skip
    then, this = clock(hour_ago), clock(at_ms)
    rows = page(settings, f"/tables/{HOURS}").rows
    assert [this, "6", "2"] in rows
    assert [this, "25.0"] in rows, "a fourth of the rows that changed was corrected"
    assert [[then, "1.2"] in rows, [then, "900"] in rows, [this, "908"] in rows] == [True] * 3
    found = page(settings, f"/topics/{READINGS}")
    assert [[then, "600"] in found.rows, [this, "360"] in found.rows] == [True] * 2
    text = " ".join(" ".join(found.text).split())
    assert "Of 100 records of five weeks: half under 1 s , 95 of 100 1 s to 10 s , the latest one 1 d to 2 d ." in text
    assert "1 h 00 min: hours, broken" in text, "the delay of the tables that read it"
    assert {tuple(row) for row in found.rows} >= {("in time", "90"), ("1 s", "5"), ("1 h", "4"), ("1 d", "1")}
    assert "Nothing is known of this time" in " ".join(page(settings, f"/tables/{DAYS}").text)
    assert "No commit of five weeks says" not in text


def test_a_column_shows_its_sources_its_readers_and_what_is_unknown(settings: Settings) -> None:
    saved(settings)
    middle = page(settings, f"/columns/{HOURS}/sensor")
    linked = [one for one in middle.addresses if one.startswith("/columns/")]
    assert set(linked) == {f"/columns/{name}/sensor" for name in (READINGS, HOURS, DAYS)}
    text = " ".join(" ".join(middle.text).split())
    assert (
        "What its value is made of plant.readings. sensor Which rows count is decided by plant.readings. sensor" in text
    )
    assert "What is made of it plant.days. sensor It decides which rows count of plant.days" in text
    unknown = " ".join(" ".join(page(settings, f"/columns/{BROKEN}/sensor").text).split())
    assert "○ unknown It may be made of other columns, too: `mapInPandas`." in unknown
    assert f"/columns/{HOURS}/sensor" in page(settings, f"/tables/{HOURS}").addresses


def clock(at_ms: int) -> str:
    """The time of the bucket of five minutes that a moment is in."""
    return f"{datetime.fromtimestamp(at_ms // 300_000 * 300, UTC):%H:%M}"
