"""The archive as the platform reads it: by fsspec, with errors that commands and DAGs handle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from twofold.infra import errors
from twofold_archive.format.archive_errors import ArchiveError
from twofold_archive.read_plan import Archive, ArchivedBounds, RangesOf
from twofold_archive.segment_reader import Part, read_all

if TYPE_CHECKING:
    import pyarrow as pa


@contextmanager
def own_errors() -> Iterator[None]:
    """Raises errors of the archive as the platform's own, which have the same names."""
    try:
        yield
    except ArchiveError as error:
        kind: type[errors.TwofoldError] = getattr(errors, type(error).__name__, errors.TwofoldError)
        raise kind(error.message, hint=error.hint, **error.facts) from error


class PlatformArchive(Archive):
    """An archive that raises errors of the platform."""

    @own_errors()
    def runs(self, topic: str) -> dict[int, list[ArchivedBounds]]:
        return super().runs(topic)

    @own_errors()
    def plan(self, ranges: RangesOf, split_bytes: int | None = None) -> list[Part]:
        return super().plan(ranges, split_bytes)

    def read(self, ranges: RangesOf, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the records in this process; raises as `plan` and `segment_reader.read`."""
        with own_errors():
            yield from read_all(self.plan(ranges), self.store, columns)


@dataclass(frozen=True)
class ArchiveFiles:
    """Reads files through fsspec; other processes get its address and open it again.

    Args:
        root: a path or a URL of a file system that fsspec knows.
        options: of that file system, such as an endpoint; credentials come from its own environment.
    """

    root: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def size(self, path: str) -> int:
        return int(self._asked(path, "size"))

    def read(self, path: str, start: int, end: int | None) -> bytes:
        data: bytes = self._asked(path, "cat_file", start=start, end=end)
        return data

    def _asked(self, path: str, method: str, **arguments: int | None) -> Any:
        files, root = self._files
        path = f"{root}/{path}"
        try:
            return getattr(files, method)(path, **arguments)
        except FileNotFoundError:
            raise
        except Exception as error:  # errors of a file system's client have no common root
            raise errors.ArchiveUnreachable(
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
        return {"root": self.root, "options": self.options}
