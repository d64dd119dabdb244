"""Compares a plan that was made again with the one that was approved."""

from __future__ import annotations

from collections.abc import Mapping

from twofold.batch.plan.plan import Plan, Plans
from twofold.infra.rows.rows import count
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.published_table import PublishedTable
from twofold.tables.refresh.row_diff import of_kinds, rows_after, rows_before

_SMALL_ROWS, _SMALL_SHARE = 20, 0.01
"""So many rows of a table, or such a share of those that were approved, may be others than a person has seen."""


def other_rows(platform: Platform, approved: Plan, made: Plan) -> dict[str, int]:
    """Counts by table the rows that only one of the plans changes, or that they change to other values.

    All rows of a table that only one of them changes, or that they compute by different code, are such rows.
    """
    plans, counts = Plans(platform.lake.settings), dict[str, int]()
    then, now = ({change.table: change for change in plan.changes} for plan in (approved, made))
    for name in dict.fromkeys((*then, *now)):
        both = [changes[name] for changes in (then, now) if name in changes]
        if len(both) < 2 or len({(change.definition, change.replaces) for change in both}) > 1:
            counts[name] = max(change.changed for change in both)
            continue
        target = PublishedTable.find(platform.spark, platform.lake, platform.registry, name)
        first, other = (plans.rows(p, c, platform.spark) for p, c in zip((approved, made), both, strict=True))
        sides = [(first, other)]
        if not both[0].replaces:
            gone = [rows_before(of_kinds(rows, ["delete"])) for rows in (first, other)]
            sides = [(rows_after(first), rows_after(other)), (gone[0], gone[1])]
        counts[name] = sum(count(target.difference(*rows)) for rows in sides)
    return {name: rows for name, rows in counts.items() if rows}


def differs_little(platform: Platform, approved: Plan, others: Mapping[str, int]) -> bool:
    """Whether the other rows of each table are few, or no more than its `approve_above`."""
    changed = {change.table: change.changed for change in approved.changes}
    own = {table.full_name: table.approve_above or 0 for table in platform.registry.tables.values()}
    return all(
        name in changed and rows <= max(_SMALL_ROWS, _SMALL_SHARE * changed[name], own.get(name, 0))
        for name, rows in others.items()
    )
