"""Chores of the lake: history of quiet tables and of ledgers, files without an owner, copies, old corrections."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from twofold.batch.chores.doomed import Doomed, measured, old
from twofold.batch.ledgers.batch_run import record_lost_runs
from twofold.batch.ledgers.reconcile_position import ReconcilePosition, reconcile_positions, splits
from twofold.batch.ledgers.run_ledgers import CORRECTIONS, EVIDENCE, Ledgers
from twofold.batch.plan.platform_copy import LONGEST
from twofold.infra.delta.compaction import after_commit
from twofold.infra.delta.lake import COPIES, Lake
from twofold.infra.delta.table_copy import BEFORE, KEPT_DAYS
from twofold.infra.delta.trim import LEDGER, Limits, Outlook, Trim
from twofold.infra.errors import TwofoldError
from twofold.infra.instants import epoch_ms, from_epoch_ms
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.events.record_decoder import TIMESTAMP
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold_algebra.sql.names import DATAFUSION

_QUIET = timedelta(hours=1)
_ORPHAN = timedelta(days=7)
_CORRECTIONS = timedelta(days=400)
T = TypeVar("T")
_log = logging.getLogger("twofold.maintain")


def keep_up(lake: Lake, registry: Registry, now: datetime) -> None:
    """Does for tables that get no writes what writers do: records lost runs, and writes the checkpoint of a log.

    Without a checkpoint that is as old as their history such tables would keep all commits.
    """
    ledgers = Ledgers(Lake(replace(lake.settings, engine="delta-rs")))  # few rows, and no Spark

    def keep(name: str) -> None:
        newest = lake.version(name)
        written_at = [from_epoch_ms(commit.timestamp_ms) for commit in lake.commits(name, newest - 1, newest)]
        if any(at > now - _QUIET for at in written_at):
            return  # its run may be about to be recorded
        if name in registry.tables:
            record_lost_runs(lake, ledgers, registry.tables[name])
        if newest and not Path(lake.uri(name), "_delta_log", f"{newest:020d}.checkpoint.parquet").exists():
            lake.open(name, newest).create_checkpoint()

    deque(_of_each(lake, keep), maxlen=0)


def outlooks(lake: Lake) -> Iterator[tuple[str, Outlook]]:
    """Yields what the trim of each table would do."""
    yield from _of_each(lake, lambda name: _trim(lake, name).outlook())


def history(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds replaced files and commits that no reader holds, and that no writer removes, since it is quiet."""
    for name, outlook in outlooks(lake):
        gone = outlook.gone
        if gone.files or gone.commits:
            why = f"history: {gone.files:,} files, {gone.commits:,} commits"
            yield Doomed(what=name, bytes=gone.bytes, why=why, remove=_trim(lake, name).now)


def orphans(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds files of tables that no log names."""
    before_s = (now - _ORPHAN).timestamp()
    for name, files in _of_each(lake, lambda name: _trim(lake, name).orphans(before_s)):
        if files:
            freed = sum(measured(file)[0] for file in files)
            why = f"{len(files):,} files that no log names, older than {_ORPHAN.days} days"
            yield Doomed(what=name, bytes=freed, why=why, remove=partial(_remove, files))


def copies(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds copies of tables that published plans and killed work have left."""
    if _is_local(lake):
        root = Path(lake.settings.lake_uri)
        yield from old(
            root.glob(f"{BEFORE}/*"), now - timedelta(days=KEPT_DAYS), "before a plan, a month ago", below=root
        )
        yield from old(root.glob(f"{COPIES}/*"), now - LONGEST, "the work on it was killed", below=root)


def split_commits(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds notes of commits that a stream has read in parts, that are gone, and that reconcile has looked at."""
    positions = reconcile_positions(lake)
    for table in registry.tables.values():
        noted, gone = Checkpoint.of_table(lake.settings, table).splits, dict[str, tuple[int, int]]()
        if not noted.file.exists():
            continue
        looked_at = positions.get(table.full_name, ReconcilePosition()).consumed
        for source in registry.upstream(table):
            floor = lake.history(source.full_name).floor().changes
            gone[source.full_name] = floor, looked_at.get(splits(source.full_name), 0)
        freed = noted.file.stat().st_size - len(noted.without(gone))
        if freed > 0:
            what = str(noted.file.relative_to(lake.settings.home))
            yield Doomed(what=what, bytes=freed, why="of commits that are gone", remove=partial(noted.forget, gone))


def corrections(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds corrections, and what caused them, of more than a year ago."""
    yield from old_rows(lake, [CORRECTIONS, EVIDENCE], now - _CORRECTIONS)


def old_rows(lake: Lake, names: list[str], since: datetime) -> Iterator[Doomed]:
    """Finds rows of ledgers that were recorded before a moment, once they fill files; the trim frees the space."""
    import pyarrow as pa

    for name in names:
        if not lake.exists(name):
            continue
        files = pa.table(lake.open(name).get_add_actions(flatten=True)).to_pylist()
        full = [file for file in files if (newest := file.get("max.recorded_at")) is not None and newest < since]
        if full:
            rows = sum(file["num_records"] for file in full)
            freed = sum(file["size_bytes"] for file in full)
            remove = partial(_delete, lake, name, since)
            yield Doomed(what=name, bytes=freed, why=f"{rows:,} rows before {since:%Y-%m-%d}", remove=remove)


def _delete(lake: Lake, name: str, since: datetime) -> None:
    from deltalake.exceptions import CommitFailedError

    try:
        moment = DATAFUSION.moment(TIMESTAMP, epoch_ms(since) or 0)
        lake.open(name).delete(f"recorded_at < {moment}", post_commithook_properties=after_commit())
    except CommitFailedError as error:  # others append: the next time does it
        _log.info("not deleted table=%s error=%s", name, error)


def _remove(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _of_each(lake: Lake, look: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    """Yields what each table says; one that cannot be read is left to `status`."""
    from deltalake.exceptions import DeltaError

    for name in lake.names() if _is_local(lake) else ():
        try:
            said = look(name)
        except (OSError, DeltaError, TwofoldError) as error:  # damaged, or trimmed by another process now
            _log.warning("not looked at table=%s error=%s", name, error)
        else:
            yield name, said


def _is_local(lake: Lake) -> bool:
    return "://" not in lake.settings.lake_uri


def _trim(lake: Lake, name: str) -> Trim:
    return Trim(lake, name, LEDGER if name.startswith("ledger.") else Limits())
