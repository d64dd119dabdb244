"""Queries take steps as often as the cores allow; which of them how often, follows from what a step costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest

from twofold.streaming.query.step_shares import Shares

CORES = 2


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def intervals(costs: Sequence[tuple[float, int]]) -> list[float]:
    """Seconds between steps of queries, each given by the seconds of a step and its readers."""
    shares = Shares(CORES, clock=Clock())
    for _ in range(2):
        found = [shares.every_s(str(n), took_s, readers=r) for n, (took_s, r) in enumerate(costs)]
    return found


@pytest.mark.parametrize("costs", [[0.1], [0.1, 0.1], [0.05, 0.1, 0.4], [0.02] * 12])
def test_all_steps_together_keep_their_share_of_the_cores_busy(costs: list[float]) -> None:
    found = intervals([(cost, 1) for cost in costs])
    assert sum(cost / every for cost, every in zip(costs, found, strict=True)) == pytest.approx(0.6 * CORES)


def test_no_other_intervals_of_the_same_cost_make_rows_wait_less() -> None:
    """By trying: each query's interval times a factor, all scaled to the same busy cores."""
    costs = [(0.05, 1), (0.1, 3), (0.4, 1)]
    found = intervals(costs)

    def waits(every: Sequence[float]) -> float:
        return sum(readers * t for t, (_, readers) in zip(every, costs, strict=True))

    best = waits(found)
    for factors in itertools.product([0.5, 0.8, 1.0, 1.3, 2.0], repeat=3):
        tried = [t * factor for t, factor in zip(found, factors, strict=True)]
        scale = sum(cost / t for t, (cost, _) in zip(tried, costs, strict=True)) / (0.6 * CORES)
        assert waits([t * scale for t in tried]) >= best - 1e-9


def test_a_query_that_takes_no_steps_leaves_its_share_to_others() -> None:
    clock = Clock()
    shares = Shares(CORES, clock=clock)
    shares.every_s("calm", 0.4)
    before = shares.every_s("busy", 0.1)
    clock.now = 60.0
    alone = shares.every_s("busy", 0.1)
    assert alone == pytest.approx(0.1 / (0.6 * CORES))
    assert before == pytest.approx(math.sqrt(0.1) * (math.sqrt(0.4) + math.sqrt(0.1)) / (0.6 * CORES))


def test_no_query_waits_longer_than_some_seconds() -> None:
    assert intervals([(60.0, 1), (60.0, 1)]) == [6.0, 6.0]
