"""A driver leaves a table alone whose checkpoint somebody else uses."""

from __future__ import annotations

import time

import pytest

from infra.locks import exclusive, is_held
from infra.settings import Settings
from streaming.driver import _Kept


class Query:
    """A query that runs until it is stopped or fails."""

    name = "hours"
    isActive = True

    def exception(self) -> Exception | None:
        return None if self.isActive else ValueError("its state is damaged")

    def stop(self) -> None:
        self.isActive = False

    awaitTermination = stop


@pytest.fixture
def started() -> list[Query]:
    return []


def kept(settings: Settings, started: list[Query]) -> _Kept:
    def start() -> Query:
        started.append(Query())
        return started[-1]

    return _Kept("hours", start, settings.stream_lock("plant.hours"))


def test_a_query_waits_while_its_checkpoint_is_made_anew(settings: Settings, started: list[Query]) -> None:
    query = kept(settings, started)
    with exclusive(settings.stream_lock("plant.hours")) as ours:
        assert ours
        query.keep(settings, "plant")
    assert started == []
    query.keep(settings, "plant")
    assert len(started) == 1


def test_the_checkpoint_of_a_query_is_held_until_it_stops_or_fails(settings: Settings, started: list[Query]) -> None:
    lock, query = settings.stream_lock("plant.hours"), kept(settings, started)
    query.keep(settings, "plant")
    assert is_held(lock)
    started[-1].isActive = False
    query.keep(settings, "plant")
    assert not is_held(lock)
    time.sleep(1.1)  # its pause
    query.keep(settings, "plant")
    assert is_held(lock)
    query.stop()
    assert (len(started), is_held(lock)) == (2, False)
