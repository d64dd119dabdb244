"""The steps in which a plan is published follow from its changes."""

from __future__ import annotations

from typing import Any

from twofold.batch.plan.plan import TableChange
from twofold.batch.plan.steps import described, steps_of
from twofold.tables.refresh.acceptance import Accepted

OLD, NEW = Accepted(code="old"), Accepted(code="new")


def change(table: str, **facts: Any) -> TableChange:
    return TableChange(table=table, version=3, rows_before=9, **{"cause": "backfill", "definition": "new", **facts})


def lines(*changes: TableChange) -> list[str]:
    return [described(step) for step in steps_of(changes)]


def test_rows_of_the_same_code_are_changed_and_recorded() -> None:
    assert lines(change("d.hours", updated=2, deleted=1), change("d.days", updated=1, is_below=True)) == [
        "update, delete rows of d.hours: 3",
        "update rows of d.days: 1",
        "record the runs of d.hours, d.days",
    ]
    assert steps_of([]) == []


def test_old_code_is_out_before_a_row_changes_and_new_code_accepted_after() -> None:
    decoded = Accepted(code="new", since={"1": 5}, through={"0": 7, "1": 9})
    changes = [
        change("d.readings", before=OLD, fact=decoded, inserted=2, updated=1, deleted=4),
        change("d.readings_quarantine", inserted=4, deleted=2),
        change("d.hours", cause="definition", before=OLD, fact=NEW, replaces=True),
        change("d.days", creates=True, inserted=3),
    ]
    assert lines(*changes) == [
        "create d.days",
        "accept the code new of d.readings: no row is known to be of it yet",
        "accept the code new of d.hours: no row is known to be of it yet",
        "insert, update rows of d.readings: 3",
        "insert, delete rows of d.readings_quarantine: 6",
        "delete rows of d.readings: 4",
        "replace d.hours",
        "insert rows of d.days: 3",
        "accept the code new of d.readings: all rows that were compared are of it",
        "record the runs of d.readings, d.readings_quarantine, d.hours, d.days",
        "compute what was written to d.readings since the plan was made, and accept the code of all rows",
        "compute what was written to d.hours since the plan was made, and accept the code of all rows",
    ]


def test_a_record_that_changes_sides_is_never_on_neither() -> None:
    """Also where one of the two tables only loses rows, or stays as it is."""
    assert lines(change("d.readings", deleted=1), change("d.readings_quarantine", inserted=1))[:2] == [
        "insert rows of d.readings_quarantine: 1",
        "delete rows of d.readings: 1",
    ]
    assert lines(change("d.readings_quarantine", updated=1))[0] == "update rows of d.readings_quarantine: 1"


def test_a_range_decoded_by_code_that_is_not_accepted_is_noted_first() -> None:
    lowered = Accepted(code="old", through={"0": 2})
    assert lines(change("d.readings", before=OLD, fact=lowered, updated=1)) == [
        "note that events of d.readings are not of its accepted code",
        "update rows of d.readings: 1",
        "record the runs of d.readings",
    ]


def test_a_roll_back_accepts_the_older_code_once_its_rows_are_back() -> None:
    """The declaration is of the newer code, which computes nothing for the older one."""
    assert lines(change("d.hours", cause="rollback", before=NEW, fact=OLD, updated=1)) == [
        "accept the code old of d.hours: no row is known to be of it yet",
        "update rows of d.hours: 1",
        "accept the code old of d.hours: all rows that were compared are of it",
        "record the runs of d.hours",
    ]


def test_other_rules_are_accepted_without_a_row() -> None:
    stricter = Accepted(code="new", rules="stricter")
    assert lines(change("d.hours", before=NEW, fact=stricter)) == [
        "accept the code new of d.hours: all rows that were compared are of it",
        "record the runs of d.hours",
    ]
