"""What the model of refreshes has found, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from shutil import rmtree

import pytest

from tests.chaos.refresh_world import DELAY_S, GOOD, GRAND_TOTALS, START_MS, TOTALS, WINDOWS, A, rounded, totals_of
from tests.chaos.test_refresh_model import APPLY, NAMES, Refreshes


@pytest.fixture
def world() -> Iterator[Refreshes]:
    """The steps, to be taken one by one."""
    world = Refreshes()
    yield world
    world.at_once.stop()
    rmtree(world.home, ignore_errors=True)


def row_of(world: Refreshes, name: str, second: int) -> int:
    """The place among the rows of a table of the one of a sensor that begins then."""
    return sorted(world.live(name)).index((A, START_MS + second * 1_000))


def test_totals_follow_windows_that_changed_while_a_plan_was_cut_short(world: Refreshes) -> None:
    world.begin([(50, [0], A, GOOD), (100, [0], A, GOOD), (150, [0], A, GOOD), (150, [0], A, GOOD)])
    world.follow()
    world.damage(WINDOWS.full_name, row_of(world, WINDOWS.full_name, 0), is_there=True)
    world.follow()
    world.repair(WINDOWS.full_name)
    world.publish_that_dies(0, APPLY, 1, is_done=True)
    world.follow()
    # The other window of the same sum: that one is again what it was when the plan was made.
    world.damage(WINDOWS.full_name, row_of(world, WINDOWS.full_name, 100), is_there=True)
    world.follow()
    world.publish(0, APPLY, 1, "")
    assert rounded(world.live(TOTALS.full_name)) != rounded(totals_of(world.live()))
    world.follow()
    assert rounded(world.live(TOTALS.full_name)) == rounded(totals_of(world.live()))


def test_damaged_rows_are_named_and_mended(world: Refreshes) -> None:
    world.begin([(50, [0], A, GOOD), (150, [0], A, GOOD), (250, [0], A, GOOD)])
    world.follow()
    assert not any(world.found(verify=True).values())
    for name, second in zip(NAMES[:2], (0, 400), strict=True):
        world.damage(name, row_of(world, name, second), is_there=second > 0)
    world.follow()
    assert world.found(verify=True) == {NAMES[0]: {(A, START_MS)}, NAMES[1]: {(A, START_MS + 400_000)}, NAMES[2]: set()}
    for which, name in enumerate(NAMES[:2]):
        world.repair(name)
        world.publish(which, APPLY, 1, "")
    assert not any(world.found(verify=True).values())


def test_a_stream_goes_on_from_what_a_plan_of_a_new_table_has_closed(world: Refreshes) -> None:
    world.begin([(50, [0], A, GOOD), (170, [0, 40], A, GOOD)], is_there=False)
    world.plan()
    world.publish(0, APPLY, 1, "")
    assert {starts_ms for _, starts_ms in world.live()} == {START_MS}
    world.ingest([(1, [DELAY_S - 10], A, 0.2)], is_read=False)
    world.start()
    world.end()


def test_a_table_is_repaired_before_one_that_was_declared_is_there(world: Refreshes) -> None:
    world.begin([(50, [0], A, GOOD), (150, [0], A, GOOD)])
    world.declare()
    world.damage(TOTALS.full_name, 0, is_there=True)
    world.repair(TOTALS.full_name)
    world.publish(0, APPLY, 1, "")
    assert not world.lake.exists(GRAND_TOTALS.full_name)
    world.start_followers()
    world.follow(1)
    assert world.live(GRAND_TOTALS.full_name) != {}
    world.end()


def test_outputs_cut_short_show_tables_that_went_back(world: Refreshes) -> None:
    world.begin([(50, [0], A, GOOD), (150, [0], A, GOOD)])
    world.follow()
    for writes in range(2, 6):
        for which in (0, 1):
            world.cut_short(which, 0, is_there=True, writes=writes)
        world.compare()
