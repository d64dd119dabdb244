"""Writes Delta version checksums for commits of delta-rs, so that Spark reads them without a job.

The file `<version>.crc` next to a commit repeats the table's metadata and protocol and counts its files; the Delta
protocol, section "Version Checksum File", defines it. Without it Spark reads the log back to its last checkpoint,
in a job of its own, whenever it opens a table or asks whether a stream has news (measured: 70 to 140 ms instead of 8).
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

_FURTHEST = 200  # versions to look back for a checksum to go on from
_REMOVE_EVERY = 100  # versions


def write_checksum(filesystem: Any, log: str, version: int) -> None:
    """Writes the checksum of a version, computed from an earlier one and the commits between.

    Best effort: if the log lacks something (an old commit is gone, a removed file has no size), no checksum is written,
    and Spark computes the counts itself.

    Args:
        filesystem: of fsspec.
        log: the directory `_delta_log` on it.
    """
    base = _newest_checksum(filesystem, log, version)
    if base is None:
        return
    of_version, checksum = base
    try:
        for number in range(of_version + 1, version + 1):
            _add_commit(checksum, filesystem.cat_file(f"{log}/{number:020d}.json"))
    except (FileNotFoundError, KeyError):
        return
    if of_version < version and checksum["metadata"] and checksum["protocol"]:
        filesystem.pipe_file(f"{log}/{version:020d}.crc", json.dumps(checksum, separators=(",", ":")).encode())
    if version % _REMOVE_EVERY == 0:
        _remove_old_checksums(filesystem, log, version)


def _remove_old_checksums(filesystem: Any, log: str, version: int) -> None:
    """Deletes checksums that are no longer needed: each one makes listing the log slower.

    Spark removes its own only with the log itself (measured: 8 ms a commit with none left, 527 ms with 60,000).
    """
    for path in filesystem.glob(f"{log}/*.crc"):
        number = path.rsplit("/", 1)[-1].removesuffix(".crc")
        if number.isdigit() and int(number) <= version - _FURTHEST:
            with suppress(FileNotFoundError):
                filesystem.rm_file(path)


def _newest_checksum(filesystem: Any, log: str, version: int) -> tuple[int, dict[str, Any]] | None:
    """Reads the newest checksum up to a version, without optional parts; an empty one precedes version 0."""
    for number in range(version, max(-1, version - _FURTHEST), -1):
        try:
            checksum = json.loads(filesystem.cat_file(f"{log}/{number:020d}.crc"))
        except (FileNotFoundError, ValueError):  # another process is writing it, or was killed before it was whole
            continue
        return number, {name: checksum.get(name) for name in _EMPTY}
    return (-1, dict(_EMPTY)) if version < _FURTHEST else None


_EMPTY: dict[str, Any] = {
    "tableSizeBytes": 0,
    "numFiles": 0,
    "numMetadata": 1,
    "numProtocol": 1,
    "metadata": None,
    "protocol": None,
}


def _add_commit(checksum: dict[str, Any], commit: bytes) -> None:
    for line in commit.splitlines():
        action = json.loads(line) if line.strip() else {}
        if "add" in action:
            checksum["numFiles"] += 1
            checksum["tableSizeBytes"] += action["add"]["size"]
        elif "remove" in action:
            checksum["numFiles"] -= 1
            checksum["tableSizeBytes"] -= action["remove"]["size"]
        elif "metaData" in action:
            checksum["metadata"] = action["metaData"]
        elif "protocol" in action:
            checksum["protocol"] = action["protocol"]
