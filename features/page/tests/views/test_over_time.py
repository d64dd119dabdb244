"""Rates and the time to catch up come from what was known at two moments; between them nothing is made up."""

from __future__ import annotations

from typing import Any

import pytest

from twofold.features.page.platform_status import PlatformStatus, StatusCache
from twofold.features.page.tests.small_platform import HOURS, READINGS, saved
from twofold.features.page.views.over_time import _fitted, _rates, catch_up_s, table_over_time
from twofold.infra.project.settings import Settings
from twofold.status.parts.series import SPANS, SeriesPoint, SeriesUpdate
from twofold.status.store import Store


@pytest.fixture
def platform(settings: Settings) -> PlatformStatus:
    saved(settings)
    found = StatusCache(settings, advance=False).newest()
    assert found is not None
    return found


def looked(settings: Settings, platform: PlatformStatus, *looks: tuple[int, int, int]) -> None:
    """Saves looks at a topic: minutes ago, the end of the log, the end of what was ingested."""
    now_ms = int(platform.now.at.timestamp() * 1_000)
    points = [
        (now_ms - 60_000 * ago, SeriesPoint(produced=produced, ingested=ingested, at_ms=now_ms - 60_000 * ago))
        for ago, produced, ingested in looks
    ]
    Store(settings).save({}, updates={READINGS: SeriesUpdate(after=None, commits=points, sample=SeriesPoint())})


@pytest.mark.parametrize(
    ("looks", "lag", "seconds"),
    [
        ([(10, 1_000, 0), (0, 1_200, 800)], 400, 400.0),  # 600 fewer wait after ten minutes
        ([(10, 1_000, 400), (0, 2_000, 800)], 1_200, None),  # ever more wait
        ([(10, 1_000, 0), (0, 1_000, 1_000)], 0, None),
        ([(0, 1_000, 0)], 1_000, None),
        ([(90, 1_000, 0), (0, 1_200, 800)], 400, None),  # too long ago
        ([], 400, None),
    ],
)
def test_a_topic_is_caught_up_when_what_waits_has_drained(
    settings: Settings, platform: PlatformStatus, looks: Any, lag: int, seconds: float | None
) -> None:
    looked(settings, platform, *looks)
    assert catch_up_s(Store(settings), platform, READINGS, lag) == seconds


def test_a_rate_is_of_two_looks_in_a_row_and_a_new_log_has_none_below_zero(
    settings: Settings, platform: PlatformStatus
) -> None:
    looked(settings, platform, (25, 100, 100), (20, 400, 400), (10, 700, 700), (5, 100, 100))
    buckets = Store(settings).series(READINGS, SPANS[0], platform.now.at)
    assert _rates(buckets, "produced")[-6:] == [None, 1.0, None, None, 0.0, None]


def test_rows_stay_as_they_were_between_two_looks(settings: Settings, platform: PlatformStatus) -> None:
    now_ms = int(platform.now.at.timestamp() * 1_000)
    points = [(now_ms - 900_000, SeriesPoint(rows=5)), (now_ms, SeriesPoint(rows=7))]
    Store(settings).save({}, updates={HOURS: SeriesUpdate(after=None, commits=points, sample=SeriesPoint())})
    [drawing] = table_over_time(Store(settings), platform, HOURS, SPANS[0]).drawings
    assert str(drawing).count("<td>5</td>") == 3
    assert str(drawing).count("<td>7</td>") == 1


@pytest.mark.parametrize(("minutes_ago", "drawn"), [([0], 12), ([100, 0], 21), ([355, 0], 72)])
def test_the_time_before_the_platform_is_not_drawn(
    settings: Settings, platform: PlatformStatus, minutes_ago: list[int], drawn: int
) -> None:
    now_ms = int(platform.now.at.timestamp() * 1_000)
    points = [(now_ms - 60_000 * ago, SeriesPoint(rows=5)) for ago in minutes_ago]
    Store(settings).save({}, updates={HOURS: SeriesUpdate(after=None, commits=points, sample=SeriesPoint())})
    assert len(_fitted(Store(settings).series(HOURS, SPANS[0], platform.now.at))) == drawn
