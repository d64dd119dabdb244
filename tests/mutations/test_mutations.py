"""Mistakes that are put into the platform's own code on purpose make the parity fuzz fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import twofold.batch.late_rows
import twofold.batch.pinned_versions
import twofold.streaming.maintain.change_driven
import twofold.tables.refresh.derived_rows
import twofold.tables.refresh.published_table
import twofold.tables.refresh.refresh
from tests.fuzz.fuzz_cases import Case, Flight, Schedule, log_of
from tests.fuzz.fuzz_check import begun, ended
from twofold.infra.instants import Interval
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.row_diff import of_kinds
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.rows.rows import Rows

pytestmark = [pytest.mark.prove, pytest.mark.spark]

Patch = Callable[[pytest.MonkeyPatch], None]


def scopes_that_begin_too_late(patch: pytest.MonkeyPatch) -> None:
    """The scope of a touched row is short of its first millisecond."""
    right = twofold.batch.pinned_versions.scopes_of

    def wrong(*arguments: Any) -> Any:
        return [
            replace(scope, interval=scope.interval and Interval(scope.interval.start + 1, scope.interval.end))
            for scope in right(*arguments)
        ]

    patch.setattr(twofold.batch.pinned_versions, "scopes_of", wrong)
    patch.setattr(twofold.streaming.maintain.change_driven, "scopes_of", wrong)


def late_rows_that_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """Of the late rows of each reconcile the first is overlooked."""
    right = twofold.batch.late_rows._late_rows
    patch.setattr(twofold.batch.late_rows, "_late_rows", lambda *arguments: right(*arguments).slice(1))


def retractions_that_are_lost(patch: pytest.MonkeyPatch) -> None:
    """Rows that should be gone are not told of."""
    right = twofold.tables.refresh.published_table.difference

    def wrong(*arguments: Any, **named: Any) -> Rows:
        return of_kinds(right(*arguments, **named), ["insert", "update"])

    patch.setattr(twofold.tables.refresh.published_table, "difference", wrong)


def repetitions_that_count(patch: pytest.MonkeyPatch) -> None:
    """The batch takes a record that was sent twice for two."""
    patch.setattr(twofold.tables.refresh.derived_rows, "first_of_each", lambda rows, _: rows)


MUTATIONS: dict[Patch, str] = {
    scopes_that_begin_too_late: "flights.flights",
    late_rows_that_are_dropped: "flights.delays_by_hour",
    retractions_that_are_lost: "flights.plane_days",
    repetitions_that_count: "flights.delays_by_hour",
}
"""A mistake -> a table that it makes wrong."""


LATE_MIN = 2_000
PROMPT = Flight(
    origin=0,
    carrier=0,
    tail=None,
    leaves=0,
    delay=10,
    cancelled=False,
    flies=60,
    departure_heard=0,
    arrival_heard=0,
    sent_again=None,
)
ONE_DAY_IN_THE_AIR = Case((replace(PROMPT, flies=24 * 60, arrival_heard=LATE_MIN),))
ONE_HOUR_TWO_LATE = Case((PROMPT, replace(PROMPT, leaves=20, departure_heard=LATE_MIN)))
SENT_TWICE_ONE_LATE = Case((replace(PROMPT, sent_again=5), replace(PROMPT, leaves=20, departure_heard=LATE_MIN)))
ONE_PLANE_THE_MIDDLE_LATE = Case(
    tuple(
        replace(PROMPT, tail=0, leaves=leaves, departure_heard=heard)
        for leaves, heard in ((0, 0), (300, LATE_MIN), (600, 0))
    )
)
WORLD = [ONE_DAY_IN_THE_AIR, ONE_HOUR_TWO_LATE, SENT_TWICE_ONE_LATE, ONE_PLANE_THE_MIDDLE_LATE]
PARTS = list(Schedule((700, 2_200, 11_000), frozenset(), ()).parts(log_of(WORLD)))
"""What is late comes when its row is closed; what makes one session of two, when both were reconciled."""


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world up to its first reconcile: all mistakes are made in what is done from there on."""
    world = begun(spark, Settings(home=tmp_path_factory.mktemp("before") / "home"))
    for part in PARTS[:2]:
        world.append(part)
        world.maintain(set(MUTATIONS.values()))
    return world


def faults(before: World, settings: Settings, tables: Sequence[str]) -> list[str]:
    """What is wrong with these tables in the end."""
    world = before.copied_to(replace(before.settings, home=settings.home))
    world.reconcile(twofold.tables)
    for part in PARTS[2:]:
        world.append(part)
    return ended(world, WORLD, twofold.tables).faults


@pytest.mark.parametrize(("mutation", "table"), MUTATIONS.items(), ids=lambda value: getattr(value, "__name__", None))
def test_a_mistake_in_our_own_code_is_found(
    before: World, settings: Settings, monkeypatch: pytest.MonkeyPatch, mutation: Patch, table: str
) -> None:
    mutation(monkeypatch)
    assert any(table in fault for fault in faults(before, settings, [table]))


def test_without_a_mistake_nothing_is_found(before: World, settings: Settings) -> None:
    """The same world with every table that a mistake is looked for in."""
    assert faults(before, settings, sorted(set(MUTATIONS.values()))) == []
