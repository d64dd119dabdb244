"""When deliveries were first received: kept over restarts for three days, all of a batch or none."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from twofold.features.webhooks.first_received import FirstReceived

NOON = datetime(2026, 11, 27, 12, 0, 0, 123456, tzinfo=UTC)
A, B = ("hub.pushes", "a"), ("hub.pushes", "b")


def test_a_delivery_that_comes_again_has_its_first_time(tmp_path: Path) -> None:
    first = FirstReceived(tmp_path / "new" / "times.sqlite")
    assert first.times([]) == {}
    assert first.times([(A, NOON), (B, NOON + timedelta(seconds=1)), (A, NOON + timedelta(seconds=2))]) == {
        A: NOON,
        B: NOON + timedelta(seconds=1),
    }
    again = FirstReceived(tmp_path / "new" / "times.sqlite")
    assert again.times([(A, NOON + timedelta(days=2))]) == {A: NOON}
    assert again.times([(("hub.other", "a"), NOON + timedelta(days=2))]) == {
        ("hub.other", "a"): NOON + timedelta(days=2)
    }


def test_a_time_is_kept_for_three_days(tmp_path: Path) -> None:
    times = FirstReceived(tmp_path / "times.sqlite")
    times.times([(A, NOON)])
    almost, after = NOON + timedelta(days=3), NOON + timedelta(days=3, minutes=11)
    assert times.times([(A, almost)]) == {A: NOON}
    assert times.times([(A, after)]) == {A: after}


def test_a_batch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "times.sqlite"
    times = FirstReceived(file)
    with pytest.raises(sqlite3.Error):
        times.times([(A, NOON), (("hub.pushes", object()), NOON)])  # type: ignore[list-item]
    times.close()
    assert FirstReceived(file).times([(A, NOON + timedelta(hours=1))]) == {A: NOON + timedelta(hours=1)}
