"""Large refreshes leave room for small ones, and no core idle."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from streaming.maintain.refresh_turns import Turns


class Refreshes:
    """Refreshes of tables of their own, which keep their turns until the test ends."""

    def __init__(self) -> None:
        self._end, self._threads = threading.Event(), list[threading.Thread]()

    def begin(self, turns: Turns, *, large: bool) -> threading.Event:
        """Another one; the event says that it has got its turn."""
        got = threading.Event()

        def refresh() -> None:
            with turns.one(large=large):
                got.set()
                self._end.wait(10)

        self._threads.append(threading.Thread(target=refresh, daemon=True))
        self._threads[-1].start()
        return got

    def end(self) -> None:
        """Let all end, those that wait too."""
        self._end.set()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def refreshes() -> Iterator[Refreshes]:
    running = Refreshes()
    yield running
    running.end()


def test_while_records_arrive_one_large_refresh_runs_next_to_small_ones(refreshes: Refreshes) -> None:
    turns = Turns(2, lambda: False)
    assert refreshes.begin(turns, large=True).wait(5)
    waits = refreshes.begin(turns, large=True)
    assert refreshes.begin(turns, large=False).wait(5)
    assert refreshes.begin(turns, large=False).wait(5)
    third = refreshes.begin(turns, large=False)
    assert not waits.wait(0.5)
    assert not third.is_set()
    refreshes.end()
    assert waits.is_set()
    assert third.is_set()


def test_while_none_arrive_large_refreshes_take_every_core(refreshes: Refreshes) -> None:
    calm = threading.Event()
    turns = Turns(2, calm.is_set)
    assert refreshes.begin(turns, large=True).wait(5)
    second = refreshes.begin(turns, large=True)
    assert not second.wait(0.5)
    calm.set()
    assert second.wait(5)
    assert not refreshes.begin(turns, large=True).wait(0.5)
    assert refreshes.begin(turns, large=False).wait(5)


def test_a_refresh_that_fails_gives_its_turn_back(refreshes: Refreshes) -> None:
    turns = Turns(1, lambda: False)
    with pytest.raises(ValueError, match="fails"), turns.one(large=True):
        raise ValueError("It fails.")
    assert refreshes.begin(turns, large=True).wait(5)
