"""Describes what can be removed, and finds files and folders that are old enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from twofold.infra.atomic_write import REMOVED, remove_folder
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.registry import Registry

MONTH = timedelta(days=30)


@dataclass(frozen=True, kw_only=True)
class Doomed:
    """Something that nothing needs any more.

    Attributes:
        what: it is, for people.
        bytes: that its removal frees.
        why: it can go.
        remove: removes it; after it was killed, or beside another one, it is simply repeated.
    """

    what: str
    bytes: int
    why: str
    remove: Callable[[], object]


Chore = Callable[[Lake, Registry, datetime], Iterable[Doomed]]
"""Finds what can go of one thing that grows, and changes nothing itself."""


def files_of(path: Path) -> Iterator[Path]:
    """Yields the file, or the files at any depth of the folder; what goes meanwhile is passed over."""
    if path.is_dir() and not path.is_symlink():
        for folder, _, names in os.walk(path):
            yield from (Path(folder, name) for name in names)
    else:
        yield path


def measured(path: Path) -> tuple[int, datetime]:
    """Returns the bytes that its removal frees, and when a file of it was last written.

    A folder counts only if no file is in it, since a removal that was killed would make it young again.
    """
    freed, newest_s = 0, 0.0
    for file in files_of(path):
        try:
            stat = file.lstat()
        except FileNotFoundError:
            continue
        freed += stat.st_size if stat.st_nlink == 1 else 0
        newest_s = max(newest_s, stat.st_mtime)
    try:
        return freed, datetime.fromtimestamp(newest_s or path.lstat().st_mtime).astimezone()
    except FileNotFoundError:
        return 0, datetime.now().astimezone()


def old(paths: Iterable[Path], since: datetime, why: str, *, below: Path) -> Iterator[Doomed]:
    """Yields the files and folders in which nothing was written since a moment, and those half removed.

    Args:
        below: names are shown relative to its folder.
    """
    for path in sorted(paths):
        is_half_removed = path.name.endswith(REMOVED)
        yield from together([path], None if is_half_removed else since, why, str(path.relative_to(below)))


def together(paths: Sequence[Path], since: datetime | None, why: str, what: str) -> Iterator[Doomed]:
    """Yields files and folders that belong together, as one, if nothing was written in any of them since a moment."""
    sizes = [measured(path) for path in paths]
    if sizes and (since is None or max(newest for _, newest in sizes) < since):
        yield Doomed(what=what, bytes=sum(freed for freed, _ in sizes), why=why, remove=partial(_remove, paths))


def old_files(folder: Path, since: datetime, why: str, *, below: Path, spared: Iterable[Path] = ()) -> Iterator[Doomed]:
    """Yields the files at any depth of a folder that were not written since a moment, as one."""
    spare = set(spared)
    aged = [file for file in files_of(folder) if file not in spare and _written_before(file, since)]
    if aged:
        freed = sum(measured(file)[0] for file in aged)
        what = f"{folder.relative_to(below)}: {len(aged):,} files"
        yield Doomed(what=what, bytes=freed, why=why, remove=partial(_remove_files, aged, folder))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            remove_folder(path)
        else:
            path.unlink(missing_ok=True)


def _written_before(file: Path, moment: datetime) -> bool:
    try:
        return file.lstat().st_mtime < moment.timestamp()
    except FileNotFoundError:
        return False


def _remove_files(files: Iterable[Path], folder: Path) -> None:
    """Removes files, and folders in this one that are then empty."""
    for file in files:
        file.unlink(missing_ok=True)
        for above in file.parents:
            if above == folder or any(above.iterdir()):
                break
            above.rmdir()
