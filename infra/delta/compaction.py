"""Compacts the files of a table, and clusters those of a merged table by time.

A MERGE writes every file again in which it finds a row. What streams revise is recent: where recent rows lie together,
a micro-batch costs the same however long the table's history is; where one file holds all, it costs as much as that.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from infra.delta.file_statistics import parquet_properties

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties

    from infra.delta.lake import Lake

TARGET = 4 << 20
"""Bytes of a file that a MERGE rewrites in a tenth of a second or two."""
_MOST = 256 << 20  # bytes that are sorted while a stream waits
_AT_ONCE = 1_024  # rows that delta-rs writes before it looks how large a file has become
_FILES = 2_048  # of a large table, before those that are merged grow
_SHARE = 16  # what is out of order is a sixteenth of the table at least, so that sorting costs in proportion to growth
_WITHOUT_HISTORY = {
    "delta.enableChangeDataFeed": "false",
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 2 days",
}
_log = logging.getLogger("twofold.tidy")


class Extent(NamedTuple):
    """A data file: its rows and bytes, and the times between which the rows lie; None: unknown."""

    rows: int
    size: int
    least: Any
    greatest: Any


def compact(lake: Lake, name: str, by: str | None = None) -> None:
    """Merge small files, write a log checkpoint and remove commits that have expired; rows stay as they are.

    Best effort: files that are rewritten meanwhile are left for the next time.

    Args:
        by: a time or date of the table's rows, by which its files are sorted apart when too much of them is mixed;
            None: rows are appended, and not revised.
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
            _set(table, {"delta.targetFileSize": str(TARGET)})
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
    table.cleanup_metadata()


def compact_without_history(lake: Lake, name: str) -> None:
    """Compact a table, and remove what its older versions need: of a ledger only the newest is ever read."""
    from deltalake.exceptions import DeltaError

    try:
        _set(lake.open(name), _WITHOUT_HISTORY)
        compact(lake, name)
        lake.open(name).vacuum(dry_run=False)
    except DeltaError as error:  # another process does the same
        _log.info("not tidied table=%s error=%s", name, error)


def _set(table: DeltaTable, properties: dict[str, str]) -> None:
    if not properties.items() <= table.metadata().configuration.items():
        table.alter.set_table_properties(properties)


def after_commit() -> PostCommitHookProperties:
    """The post-commit options of delta-rs: it does not search the log for expired files, which `tidy` does.

    That took half of a commit's time in a log of a thousand commits, and six sevenths in one of twenty thousand.
    """
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(cleanup_expired_logs=False)


def merged_size(total: int, target: int) -> int:
    """Bytes up to which files that lie side by side are made one, in a table that is not sorted again.

    A quarter of a sorted file, so that no old file is made one with the newest. In a large table more: each time that
    it doubles its files do, until a stream would wait too long for one, so that they stay a few thousand.
    """
    size = target // 4
    while size < 16 * target and size * _FILES < total:
        size *= 2
    return size


def is_mixed(files: Sequence[Extent], target: int) -> bool:
    """Whether so much lies in files that share their times with others, or that are too large, that sorting pays.

    Not where it would take long, nor where it is unknown when the rows of a file are.
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
