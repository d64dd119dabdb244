"""Compacts the files of a table, and clusters those of a merged table by time.

A MERGE rewrites every file that holds a matching row. Streams change recent rows: if those are in few files, the cost
of a micro-batch does not grow with the table's history; if one file holds all rows, it does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from twofold.infra.delta.file_statistics import parquet_properties
from twofold.infra.delta.trim import LEDGER, Trim, set_properties

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties

    from twofold.infra.delta.lake import Lake

TARGET = 4 << 20
"""Bytes of a file that a MERGE rewrites in a tenth of a second or two."""
_MOST = 256 << 20  # bytes that are sorted while a stream waits
_AT_ONCE = 1_024  # rows that delta-rs writes before it looks how large a file has become
_FILES = 2_048  # of a large table, before those that are merged grow
_SHARE = 16  # what is out of order is a sixteenth of the table at least, so that sorting costs in proportion to growth
_WITHOUT_HISTORY = {"delta.enableChangeDataFeed": "false"}
_log = logging.getLogger("twofold.tidy")


class Extent(NamedTuple):
    """A data file: its rows, its bytes, and the least and greatest time of its rows; None: unknown."""

    rows: int
    size: int
    least: Any
    greatest: Any


def compact(lake: Lake, name: str, by: str | None = None) -> None:
    """Merges small files, and writes a log checkpoint; rows stay as they are.

    Best effort: files that others rewrite meanwhile are left for the next run.

    Args:
        by: a time or date column by which files are sorted if too many overlap; None: rows are only appended, never
            revised.
    """
    from deltalake.exceptions import CommitFailedError

    table = lake.open(name)
    writes: dict[str, Any] = {
        "post_commithook_properties": after_commit(),
        "writer_properties": parquet_properties(table),
    }
    try:
        if by:
            # A MERGE keeps the order of the rows that it finds, and cuts off what fills a file: the end of the table
            # does not grow with it.
            set_properties(table, {"delta.targetFileSize": str(TARGET)})
        files = _extents(table, by) if by else []
        if by and is_mixed(files, TARGET):
            table.optimize.z_order([by], target_size=TARGET, **writes)
            _log.info("sorted table=%s by=%s files=%d", name, by, len(table.file_uris()))
        else:
            size = merged_size(sum(file.size for file in files), TARGET) if by else None
            table.optimize.compact(target_size=size, **writes)
    except CommitFailedError as error:
        _log.info("not tidied table=%s error=%s", name, error)
        return
    lake.write_checksum(name, table.version())
    table.create_checkpoint()


def compact_without_history(lake: Lake, name: str) -> None:
    """Compacts a ledger, whose newest version alone is read: it has no change feed, and a short history."""
    from deltalake.exceptions import DeltaError

    try:
        set_properties(lake.open(name), _WITHOUT_HISTORY)
        compact(lake, name)
    except DeltaError as error:  # another process does the same
        _log.info("not tidied table=%s error=%s", name, error)
    Trim(lake, name, LEDGER).now()


def after_commit() -> PostCommitHookProperties:
    """Returns delta-rs options that skip the cleanup of expired log files after a commit; `tidy` does it instead.

    The cleanup took half of a commit's time in a log of a thousand commits, and six sevenths in one of twenty thousand.
    """
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(cleanup_expired_logs=False)


def merged_size(total: int, target: int) -> int:
    """Returns the size in bytes up to which neighbouring files are merged, in a table that is not sorted again.

    It is a quarter of a sorted file, so that no old file is merged with the newest. It grows with the table, so that
    the number of files stays at a few thousand, up to a size that would make a stream wait too long.
    """
    size = target // 4
    while size < 16 * target and size * _FILES < total:
        size *= 2
    return size


def is_mixed(files: Sequence[Extent], target: int) -> bool:
    """Whether so many bytes are in oversized files, or in files that overlap in time, that sorting pays.

    False if sorting would take too long, or if the times of a file are unknown.
    """
    total = sum(file.size for file in files)
    if total > _MOST or any(file.least is None or file.greatest is None for file in files):
        return False
    misplaced = sum(
        file.size
        for n, file in enumerate(files)
        if (file.size > 2 * target and file.rows > 2 * _AT_ONCE)
        or any(file.least < o.greatest and o.least < file.greatest for m, o in enumerate(files) if m != n)
    )
    return misplaced > max(2 * target, total // _SHARE)


def _extents(table: DeltaTable, by: str) -> list[Extent]:
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        Extent(file.get("num_records") or 0, file["size_bytes"], file.get(f"min.{by}"), file.get(f"max.{by}"))
        for file in files
    ]
