"""Large refreshes leave room for small ones, and no core idle; inputs come before what reads them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tables.declared import TOPIC_FILE, written
from twofold.streaming.maintain.refresh_turns import Turns, level_of
from twofold.tables.declare.registry import load


class Refreshes:
    """Refreshes of tables of their own, which keep their turns until the test ends."""

    def __init__(self) -> None:
        self._end, self._threads = threading.Event(), list[threading.Thread]()
        self.order = list[str]()

    def begin(
        self, turns: Turns, *, large: bool = False, name: str = "", level: int = 0, until: threading.Event | None = None
    ) -> threading.Event:
        """Another one; the event says that it has got its turn."""
        got = threading.Event()

        def refresh() -> None:
            with turns.one(name, level=level, much=large):
                self.order.append(name)
                got.set()
                (until or self._end).wait(10)

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
    with pytest.raises(ValueError, match="fails"), turns.one("", level=0, much=True):
        raise ValueError("It fails.")
    assert refreshes.begin(turns, large=True).wait(5)


def await_waiting(turns: Turns, number: int) -> None:
    deadline = time.monotonic() + 5
    while len(turns._waiting) != number and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(turns._waiting) == number


def in_turn(refreshes: Refreshes, *waiting: tuple[str, int, float]) -> list[str]:
    """The order in which refreshes of a name and a level get the only turn, that begin to wait at a time, seconds."""
    now, first = [0.0], threading.Event()
    turns = Turns(1, lambda: False, clock=lambda: now[0])
    assert refreshes.begin(turns, name="first", until=first).wait(5)
    for number, (name, level, now[0]) in enumerate(waiting, 1):
        refreshes.begin(turns, name=name, level=level, until=first)
        await_waiting(turns, number)
    first.set()
    await_waiting(turns, 0)
    refreshes.end()
    return refreshes.order[1:]


def test_inputs_are_refreshed_before_the_tables_that_read_them(refreshes: Refreshes) -> None:
    order = in_turn(refreshes, ("report", 2, 0.0), ("joined", 1, 0.1), ("copy", 0, 0.2), ("other copy", 0, 0.3))
    assert order == ["copy", "other copy", "joined", "report"]


def test_a_table_far_from_the_topics_does_not_wait_for_ever(refreshes: Refreshes) -> None:
    assert in_turn(refreshes, ("report", 2, 0.0), ("copy", 0, 3.9), ("copy", 0, 4.1)) == ["copy", "report", "copy"]


def steps(**took_s: float) -> Turns:
    now = [0.0]
    turns = Turns(1, lambda: False, clock=lambda: now[0])
    for name, seconds in took_s.items():
        with turns.one(name, level=0, much=False):
            now[0] += seconds
    return turns


@pytest.mark.parametrize("busy", [1, 40])
def test_a_step_is_heavy_by_the_others_and_not_by_how_busy_the_machine_is(busy: int) -> None:
    turns = steps(a=0.1 * busy, b=0.2 * busy, c=0.3 * busy, d=1.2 * busy)
    assert [name for name in ("a", "b", "c", "d", "unknown") if turns.is_heavy(name)] == ["d"]
    assert not steps(alone=60.0).is_heavy("alone")


def test_a_heavy_refresh_leaves_the_turn_of_a_small_one_free(refreshes: Refreshes) -> None:
    turns = steps(a=0.1, b=0.1, heavy=9.0)
    assert refreshes.begin(turns, name="heavy").wait(5)
    assert refreshes.begin(turns, name="a").wait(5)


def test_levels_follow_the_order_of_dependency(tmp_path: Path) -> None:
    reads = {"copy": "readings", "joined": "copy, readings", "report": "joined"}
    parameters = 'primary_key=["sensor", "read_at"], recompute_by=["sensor"]'
    head = f'"""A table."""\nfrom twofold import table\n\n\n@table({parameters})\n'
    files = {
        f"plant/{name}.py": f"{head}def {name}({inputs}):\n    return {inputs.split(',')[0]}\n"
        for name, inputs in reads.items()
    }
    registry = load(written(tmp_path, {"plant/readings.py": TOPIC_FILE, **files})).require_sound()
    assert [level_of(registry, registry.find_table(name)) for name in reads] == [0, 1, 2]
