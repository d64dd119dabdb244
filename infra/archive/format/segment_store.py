"""Bytes of archived segments, from a disk or an object store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from twofold.infra.archive.format.segment import Segment
from twofold.infra.archive.format.storage_layout import LAYOUTS, Kind
from twofold.infra.errors import ArchiveUnreachable


@dataclass(frozen=True)
class Store:
    """Reads the files of segments through fsspec; other processes get its address and open it again.

    Args:
        root: a path or a URL of a file system that fsspec knows.
        options: of that file system, such as an endpoint; credentials come from its own environment.
        layout: a name in LAYOUTS.
    """

    root: str
    options: Mapping[str, Any] = field(default_factory=dict)
    layout: str = "local-tiered-storage"

    def size(self, segment: Segment, kind: Kind) -> int:
        """Returns the size of a file in bytes.

        Raises:
            CorruptSegment: it is not there.
            ArchiveUnreachable: retryable.
        """
        return int(self._asked(segment, kind, "size"))

    def read(self, segment: Segment, kind: Kind, start: int = 0, end: int | None = None) -> bytes:
        """Reads the bytes `[start, end)` of a file; fewer if it ends before.

        Raises:
            CorruptSegment: it is not there.
            ArchiveUnreachable: retryable.
        """
        data: bytes = self._asked(segment, kind, "cat_file", start=start, end=end)
        return data

    def _asked(self, segment: Segment, kind: Kind, method: str, **arguments: int | None) -> Any:
        files, root = self._files
        path = f"{root}/{LAYOUTS[self.layout].path(segment, kind)}"
        try:
            return getattr(files, method)(path, **arguments)
        except FileNotFoundError as error:
            raise segment.corrupt(f"it is listed, but {path} is not there") from error
        except Exception as error:  # errors of a file system's client have no common root
            raise ArchiveUnreachable(
                f"{path} cannot be read: {type(error).__name__}: {error}.",
                hint="Check that this machine may reach the archive (TWOFOLD_ARCHIVE) and read it.",
                path=path,
            ) from error

    @cached_property
    def _files(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        # A listing that is kept would hide later segments.
        files, root = url_to_fs(self.root, use_listings_cache=False, **self.options)
        return files, root.rstrip("/")

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "options": self.options, "layout": self.layout}
