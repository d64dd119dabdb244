"""Makes a failing case small: all ways to leave something out are tried at once, as cases of one world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from tests.fuzz.fuzz_cases import MOST_CASES, Schedule
from tests.fuzz.fuzz_check import Subject, Verdict, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 5


class Shrinkable(Protocol):
    """A case that can be told with something left out."""

    def __len__(self) -> int: ...

    def __hash__(self) -> int: ...

    def smaller(self: C) -> Iterator[C]: ...


C = TypeVar("C", bound=Shrinkable)

_told: dict[tuple[str, tuple[Shrinkable, ...], Schedule], str] = {}


def failure_of(spark: SparkSession, world: Sequence[C], schedule: Schedule, subject: Subject) -> str:
    """What is wrong with the world, with the smallest failing case; nothing when all tables are right.

    Hypothesis runs a failing example again to report it; a world takes a minute, so its judgement is kept.
    """
    example = (subject.domain, tuple(world), schedule)
    if example not in _told:
        _told[example] = _judged(spark, world, schedule, subject)
    return _told[example]


def _judged(spark: SparkSession, world: Sequence[C], schedule: Schedule, subject: Subject) -> str:
    verdict = run(spark, world, schedule, subject=subject)
    if not verdict.faults:
        return ""
    lines = [*verdict.faults, f"schedule: {schedule}"]
    if verdict.blamed:
        case = min((world[number] for number in verdict.blamed), key=len)
        again = partial(run, spark, schedule=schedule, subject=subject)
        lines.append(f"fails alone: {smallest(case, again)}")
    return "\n".join(lines)


def smallest(case: C, run: Callable[[Sequence[C]], Verdict]) -> C:
    """The smallest case found within `ROUNDS` worlds that still fails, or the case itself."""
    for _ in range(ROUNDS):
        candidates = list(dict.fromkeys(case.smaller()))[:MOST_CASES]
        failing = [candidates[number] for number in run(candidates).blamed] if candidates else []
        if not failing:
            break
        case = min(failing, key=len)
    return case
