"""Makes a failing case small: all ways to leave something out are tried at once, as cases of one world."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.fuzz.cases import MOST_CASES, Case
from tests.fuzz.check import Verdict

ROUNDS = 5


def smallest(case: Case, run: Callable[[Sequence[Case]], Verdict]) -> Case:
    """The smallest case found within `ROUNDS` worlds that still fails, or the case itself."""
    for _ in range(ROUNDS):
        candidates = list(dict.fromkeys(c for c in case.smaller() if c.flights))[:MOST_CASES]
        failing = [candidates[number] for number in run(candidates).blamed] if candidates else []
        if not failing:
            break
        case = min(failing, key=len)
    return case
