"""How the worlds of a fuzz are drawn: few, each of many cases, since a world costs a minute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.fuzz.fuzz_cases import Schedule
from tests.fuzz.shrink import C
from tests.harness.tiers import this_run

WORLDS = this_run.worlds or 1
CASES_PER_WORLD = 26
T = TypeVar("T")


def timeout_s(worlds: int) -> int:
    """How long so many worlds may take on a busy machine."""
    return 600 + 120 * worlds


def over_worlds(
    cases: SearchStrategy[C], schedules: SearchStrategy[Schedule], worlds: int
) -> Callable[[Callable[..., None]], Any]:
    """Run a test with so many drawn `world`s and their `schedule`s; Hypothesis does not shrink them, `shrink` does."""

    def drawn(test: Callable[..., None]) -> Any:
        return settings(
            max_examples=worlds,
            print_blob=True,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(
            given(
                world=st.lists(cases, min_size=CASES_PER_WORLD, max_size=CASES_PER_WORLD).map(_required_to_vary),
                schedule=schedules if worlds > 1 else schedules.map(_brief),
            )(test)
        )

    return drawn


def distinct_values(strategy: SearchStrategy[T], count: int) -> list[T]:
    """Draws so many values, which follow from the seed of the run.

    Hypothesis makes each of one before it, so that the values are some of four times as many; and a test that took them
    from it one by one would run a failing one again.
    """
    found: list[T] = []

    @seed(this_run.seed)
    @settings(
        max_examples=4 * count + 40, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    others = list({repr(value): value for value in found[10:]}.values())
    Random(this_run.seed).shuffle(others)
    return others[:count]


def _brief(schedule: Schedule) -> Schedule:
    """What is enough for a single world: one restart and one reconcile in the middle, since both come again at its end.

    Who refreshes tables is a parameter of `tests/tables/refresh/test_refresh.py`; here it is what is quick.
    """
    restarts, reconciles = frozenset(sorted(schedule.restarts)[:1]), schedule.reconciles[:1]
    return replace(schedule, restarts=restarts, reconciles=reconciles, small_rows=Schedule.small_rows)


def _required_to_vary(world: list[C]) -> list[C]:
    assume(len(set(world)) > CASES_PER_WORLD // 2)  # the first world that Hypothesis thinks of is the emptiest
    return world
