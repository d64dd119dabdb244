"""Bytes of archived segments, from whatever holds their files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from twofold_archive.format.segment import Segment
from twofold_archive.format.storage_layout import LAYOUTS, Kind

T = TypeVar("T")


class Files(Protocol):
    """Reads files by their paths below the root of the archive; a task of another process gets a copy of it.

    Both raise `FileNotFoundError` for a file that is not there, and any other error of theirs for what goes wrong.
    """

    def size(self, path: str) -> int:
        """Returns the size of a file in bytes."""
        ...

    def read(self, path: str, start: int, end: int | None) -> bytes:
        """Reads the bytes `[start, end)` of a file; fewer if it ends before."""
        ...


@dataclass(frozen=True)
class Store:
    """Reads the files of segments.

    Args:
        layout: a name in LAYOUTS.
    """

    files: Files
    layout: str = "local-tiered-storage"

    def size(self, segment: Segment, kind: Kind) -> int:
        """Returns the size of a file in bytes.

        Raises:
            CorruptSegment: it is not there.
        """
        return self._asked(segment, kind, self.files.size)

    def read(self, segment: Segment, kind: Kind, start: int = 0, end: int | None = None) -> bytes:
        """Reads the bytes `[start, end)` of a file; fewer if it ends before.

        Raises:
            CorruptSegment: it is not there.
        """
        return self._asked(segment, kind, lambda path: self.files.read(path, start, end))

    def _asked(self, segment: Segment, kind: Kind, ask: Callable[[str], T]) -> T:
        path = LAYOUTS[self.layout].path(segment, kind)
        try:
            return ask(path)
        except FileNotFoundError as error:
            raise segment.corrupt(f"it is listed, but {path} is not there") from error
