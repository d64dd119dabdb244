"""Copies a Delta table by its log: the copy shares the data files, and goes its own way from there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from twofold.infra.delta.lake import Lake
from twofold.infra.delta.logged_commit import logged_version

_LAST_CHECKPOINT = "_last_checkpoint"
BEFORE = "_before"
"""Folder of a lake for tables as runs have changed them."""
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)
"""Errors of a link to another disk, of a file system without links, and of one more than a file may have."""
KEPT_DAYS = 30
"""For so long a published plan can be taken back."""


def copy_table(source: Lake, target: Lake, name: str, since: int) -> int:
    """Copies a table to the target lake, with its current rows and its history after version `since`.

    A data file is never written twice, so that a link to it is a copy: on one disk this costs milliseconds and no space
    for any number of rows; to another disk the files are copied. Later commits and vacuums of either table do not
    affect the other one.

    Args:
        since: commits after it, and the changes that they made, can be read in the copy.

    Returns:
        The version of the copy.

    Raises:
        BadArgument: the table was never written.
    """
    root, copy = Path(source.uri(name)), Path(target.uri(name))
    for lake in (source, target):
        lake.history(name).keep_while_running(since)
    last_checkpoint = root / "_delta_log" / _LAST_CHECKPOINT
    # It is replaced in its place, and read first: it names no version that the log's listing lacks.
    pointer = last_checkpoint.read_text() if last_checkpoint.exists() else ""
    source.version(name)  # there is such a table
    files = [file.name for file in (root / "_delta_log").iterdir()]
    log = {file: version for file in files if (version := logged_version(file)) is not None}
    target.history(name).raise_floor(source.history(name).floor())
    newest = max(version for file, version in log.items() if file.endswith(".json"))
    checkpoints = [version for file, version in log.items() if ".checkpoint." in file and version <= newest]
    first = max((version for version in checkpoints if version <= since), default=min([*checkpoints, 0]))
    (copy / "_delta_log").mkdir(parents=True)
    for file, version in log.items():
        if first <= version <= newest:
            _link(root / "_delta_log" / file, copy / "_delta_log" / file)
    if pointer:
        (copy / "_delta_log" / _LAST_CHECKPOINT).write_text(pointer)
    for path in {*_live_files(target, name), *_files_of_commits(copy, range(max(first, since), newest + 1))}:
        _link(root / path, copy / path)
    return newest


def keep_before(lake: Lake, name: str, run: str, since: int) -> None:
    """Keeps what a run has changed in a table since a version for a month, also if the table is trimmed before.

    It removes what was kept for longer than that.
    """
    kept = before(lake, name, run)
    if "://" in lake.settings.lake_uri or kept is not lake:
        return
    for folder in Path(lake.settings.lake_uri, BEFORE).glob("*"):
        if time.time() - folder.stat().st_mtime > KEPT_DAYS * 24 * 3_600:
            shutil.rmtree(folder, ignore_errors=True)
    draft = _lake_of(lake, run, f"{name}.draft")
    shutil.rmtree(draft.settings.lake_uri, ignore_errors=True)
    copy_table(lake, draft, name, since)
    Path(draft.settings.lake_uri).rename(_lake_of(lake, run, name).settings.lake_uri)


def before(lake: Lake, name: str, run: str) -> Lake:
    """Returns a lake in which a table has the versions before and after a run: what was kept, or the lake itself."""
    kept = _lake_of(lake, run, name)
    return kept if kept.exists(name) else lake


def _lake_of(lake: Lake, run: str, name: str) -> Lake:
    return Lake(replace(lake.settings, lake=f"{lake.live_uri}/{BEFORE}/{run}/{name}"))


def _link(source: Path, copy: Path) -> None:
    """Makes the file one of the copy, too, by its bytes if the file system has no link to it, as on another disk."""
    with suppress(FileNotFoundError):  # retention has removed it; who reads it is told so
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, copy)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            shutil.copyfile(source, copy)


def _live_files(lake: Lake, name: str) -> Iterator[str]:
    """Yields the paths of the current data files, relative to the table."""
    root = lake.uri(name) + "/"
    for uri in lake.open(name).file_uris():
        yield unquote(uri.removeprefix("file://")).removeprefix(root)


def _files_of_commits(root: Path, versions: range) -> Iterator[str]:
    """Yields the paths of files that these commits added, removed or wrote as change data."""
    for version in versions:
        commit = root / "_delta_log" / f"{version:020d}.json"
        for line in commit.read_text().splitlines() if commit.exists() else ():
            for action in json.loads(line).values():
                if isinstance(action, dict) and "path" in action:
                    yield unquote(action["path"])
