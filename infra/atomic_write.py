"""Writes files and removes folders atomically: readers see all of one or nothing, also after a crash."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

REMOVED = ".removed"
"""How the name of a folder ends that is being removed."""


def write_atomically(file: Path, text: str, *, lasting: bool = True) -> None:
    """Replaces a file atomically: a concurrent reader, or one after a crash, finds the old or the new text.

    Args:
        lasting: the text also survives a crash of the machine right afterwards, which costs a disk some milliseconds.
            If False, such a crash may leave an empty file.
    """
    draft = file.with_name(f"{file.name}.{os.getpid()}.draft")
    draft.write_text(text)
    if lasting:
        _sync(draft)
    draft.replace(file)
    if lasting:
        _sync(file.parent)


def remove_folder(folder: Path) -> None:
    """Removes a folder, if it is there, in a way that leaves no incomplete one of its name after a crash."""
    removed = folder.with_name(f"{folder.name.removesuffix(REMOVED)}{REMOVED}")
    if removed != folder:
        shutil.rmtree(removed, ignore_errors=True)
        with suppress(FileNotFoundError):
            folder.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def settle(files: Iterable[Path]) -> None:
    """Syncs files and their directory entries to disk, to survive a crash of the machine; skips missing files."""
    there = [file for file in files if file.exists()]
    for path in (*there, *dict.fromkeys(file.parent for file in there)):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
