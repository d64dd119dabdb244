"""A table waits for a large pending batch, not for a trickle and not for ever."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.tables.declared import a_table, a_topic
from twofold.streaming.maintain import refresh_pace
from twofold.streaming.maintain.refresh_pace import Pace
from twofold.streaming.maintain.refresh_turns import Turns
from twofold.streaming.query.step_shares import Shares

TABLE, TOPIC = a_table(), a_topic()
MUCH = refresh_pace.FEW + 1


@dataclass
class Backlog:
    """What waits and what arrives, as a test says."""

    before: int = 0
    lately: int = 0
    silence_s: float = 0.0
    waiting: int = 0
    asked: list[float] = field(default_factory=list)

    def before_streams(self, table: Any) -> float:
        return self.before

    def arrived(self, name: str, within_s: float) -> int:
        return self.lately

    def quiet_s(self, name: str) -> float:
        return self.silence_s

    def note_read(self, table: Any, versions: Any) -> None:
        pass

    def rows(self, name: str, start: int) -> float:
        self.asked.append(time.monotonic())
        return self.waiting


def paced(backlog: Backlog) -> Pace:
    return Pace(cast(Any, backlog), Turns(1, lambda: True), Shares(1))


@pytest.mark.parametrize(
    ("backlog", "is_due"),
    [
        (Backlog(), True),
        (Backlog(before=refresh_pace.FEW, lately=refresh_pace.FEW), True),
        (Backlog(before=MUCH), False),
        (Backlog(lately=MUCH), False),
        (Backlog(lately=MUCH, silence_s=1.0), True),
    ],
)
def test_a_refresh_waits_for_streams_behind_and_inputs_that_fill(backlog: Backlog, is_due: bool) -> None:
    assert paced(backlog).is_due(TABLE, [TOPIC]) is is_due


def test_a_refresh_waits_no_longer_than_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh_pace, "_PATIENCE_S", 0.2)
    one = paced(Backlog(before=MUCH))
    assert not one.is_due(TABLE, [TOPIC])
    time.sleep(0.25)
    assert one.is_due(TABLE, [TOPIC])
    assert not one.is_due(TABLE, [TOPIC])  # which is another step's wait


def settled_s(backlog: Backlog, took_s: float = 0.0, pace: Pace | None = None) -> float:
    began = time.monotonic()
    (pace or paced(backlog)).settle(TABLE, [TOPIC], [7], took_s)
    return time.monotonic() - began


def test_a_stream_pauses_only_while_its_inputs_fill_and_little_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh_pace, "_PAUSE_S", 0.4)
    assert settled_s(Backlog(lately=MUCH, waiting=10)) >= 0.4
    for backlog in (
        Backlog(lately=refresh_pace.FEW),
        Backlog(lately=MUCH, silence_s=1.0),
        Backlog(lately=MUCH, waiting=25_000),
    ):
        assert settled_s(backlog) < 0.4


def test_a_step_is_followed_by_a_rest_that_its_cost_decides() -> None:
    """A single query of 0.3 s a step may take 0.6 cores: a step every 0.5 s."""
    assert settled_s(Backlog(), took_s=0.3) == pytest.approx(0.2, abs=0.09)
    assert settled_s(Backlog(waiting=25_000), took_s=0.3) < 0.1, "so many rows wait"
    closing = paced(Backlog())
    closing.shares.closing.set()
    assert settled_s(Backlog(), took_s=0.3, pace=closing) < 0.1, "the driver ends"


def test_a_step_is_much_beyond_a_few_rows() -> None:
    assert [paced(Backlog(waiting=rows)).is_much([TOPIC], [0]) for rows in (refresh_pace.FEW, MUCH)] == [False, True]
