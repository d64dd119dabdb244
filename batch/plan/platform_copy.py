"""Copies the part of a platform that a rewrite of history affects, to try the rewrite there first."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from twofold.batch.ledgers.reconcile_position import ReconcilePosition, reconcile_positions
from twofold.batch.ledgers.run_ledgers import LEDGERS
from twofold.infra.delta.lake import COPIES, QUARANTINE, Lake
from twofold.infra.delta.table_copy import copy_table
from twofold.infra.project.settings import Settings
from twofold.tables.declare.table import Table
from twofold.tables.refresh.events import lost_offsets, transaction_offsets
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.streaming_checkpoint import Checkpoint

_LEDGERS = (*LEDGERS, lost_offsets.GAPS, transaction_offsets.TRANSACTIONS)
"""Ledgers that a rewrite reads or writes."""
LONGEST = timedelta(days=3)
"""No copy is in use for longer."""


@contextmanager
def copied(
    live: Platform, names: Collection[str], home: Path, *, with_below: bool = True, with_history: bool = False
) -> Iterator[Platform]:
    """Copies these tables and topics with all upstream and downstream ones; removes the copy after the block.

    The copy has the current rows, ledgers and positions, and does not change while live streams continue. All work of a
    platform runs on the copy, and touches nothing of the live one but the log, which it reads.

    Args:
        names: full names; a table that does not exist yet is left out.
        home: a folder for the copy, with a unique name; its tables are in the live lake, whose files they share.
        with_below: also the tables below them.
        with_history: keep all earlier changes of these tables readable in the copy.
    """
    settings = live.lake.settings.of_copy(home, f"{live.lake.settings.lake_uri}/{COPIES}/{home.name}")
    # What is refused as new is refused before: the copy lacks live tables that are not reached.
    copy = Platform(lambda: live.spark, Lake(settings), replace(live.registry, unproved={}))
    _remove_left(Path(settings.lake).parent)
    try:
        below = live.registry.below(names) if with_below else []
        reached = {*names, *(table.full_name for table in below)}
        tables = [table for table in live.registry.in_order() if table.full_name in reached]
        _copy_tables(live, copy, names, tables, with_history=with_history)
        yield copy
    finally:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(settings.lake, ignore_errors=True)


def _remove_left(copies: Path) -> None:
    """Removes copies left by killed processes."""
    for copy in copies.glob("*"):
        if time.time() - copy.stat().st_mtime > LONGEST.total_seconds():
            shutil.rmtree(copy, ignore_errors=True)


def _copy_tables(
    live: Platform, copy: Platform, names: Collection[str], reached: list[Table], *, with_history: bool
) -> None:
    lake, registry = live.lake, live.registry
    positions = reconcile_positions(lake)
    # The order is that of every refresh: a stream's watermark before its table, a table before its inputs.
    for table in reached:
        _copy_progress(lake.settings, copy.lake.settings, table)
    rows: dict[str, None] = dict.fromkeys(table.full_name for table in reversed(reached))
    for table in reached:
        above = registry.above(table)
        rows |= dict.fromkeys([*(each.full_name for each in reversed(above.in_order())), *above.topics])
    for name in (*rows, *names, *(name + QUARANTINE for name in (*rows, *names) if name in registry.topics), *_LEDGERS):
        if lake.exists(name) and not copy.lake.exists(name):
            is_whole = with_history and name.removesuffix(QUARANTINE) in names
            copy_table(lake, copy.lake, name, 0 if is_whole else _read_since(lake, name, positions.values()))


def _read_since(lake: Lake, name: str, positions: Collection[ReconcilePosition]) -> int:
    """Returns the oldest version of a table whose changes a reconcile may need."""
    newest = lake.version(name)
    return min((position.consumed[name] for position in positions if name in position.consumed), default=newest)


def _copy_progress(settings: Settings, copy: Settings, table: Table) -> None:
    """Copies the progress of the table's stream, without its state."""
    source, target = Checkpoint.of_table(settings, table).path, Checkpoint.of_table(copy, table).path
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.exists():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("state", "*.crc", "*.draft", ".*"))
    for file in source.parent.glob(f"{source.name}.*"):
        if file.is_file():
            shutil.copy(file, target.parent)
