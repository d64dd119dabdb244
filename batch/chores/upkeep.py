"""Runs all chores, each on its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from pkgutil import resolve_name

from twofold.batch.chores import home_chores, table_chores
from twofold.batch.chores.doomed import Chore, Doomed
from twofold.infra.delta.lake import Lake
from twofold.infra.project.feature import features
from twofold.tables.declare.registry import Registry

_log = logging.getLogger("twofold.maintain")


def chores() -> list[Chore]:
    """Returns the chores of the core, then those of features."""
    return [
        table_chores.history,
        table_chores.orphans,
        table_chores.copies,
        table_chores.split_commits,
        table_chores.corrections,
        home_chores.checkpoints,
        home_chores.shadows,
        home_chores.plans,
        home_chores.quality_results,
        home_chores.logs,
        home_chores.airflow,
        home_chores.spark_scratch,
        home_chores.class_archives,
        home_chores.drafts,
        *(resolve_name(name) for feature in features() for name in feature.chores),
    ]


def upkeep(lake: Lake, registry: Registry, now: datetime, faults: list[str], *, dry_run: bool) -> Iterator[Doomed]:
    """Removes what chores find, and yields it, which may be killed and repeated at any time.

    Args:
        faults: gets what fails, which stops no other chore.
        dry_run: nothing is removed, or changed otherwise.
    """
    if not dry_run:
        table_chores.keep_up(lake, registry, now)
    for chore in chores():
        try:
            for doomed in chore(lake, registry, now):
                if not dry_run:
                    doomed.remove()
                    _log.info("removed what=%s bytes=%d why=%s", doomed.what, doomed.bytes, doomed.why)
                yield doomed
        except Exception as error:  # of any type: what one chore cannot do is no reason to leave the others undone
            _log.exception("not done chore=%s", chore.__name__)
            faults.append(f"{chore.__name__}: {error}")
