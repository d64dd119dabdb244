"""Every error that the archive raises on purpose, under one root."""

from __future__ import annotations


class ArchiveError(Exception):
    """The root: its message says what was expected, what was found and where; its hint says what to do."""

    def __init__(self, message: str, *, hint: str, **facts: object) -> None:
        super().__init__(message)
        self.message, self.hint, self.facts = message, hint, facts

    def __str__(self) -> str:
        return f"{self.message}\nHint: {self.hint}"


class BadArgument(ArchiveError):
    """Columns that records do not have, or a range that ends before it begins."""


class LogGap(ArchiveError):
    """Offsets before the archive, or in a hole of it."""


class NotArchived(ArchiveError):
    """Offsets beyond the frontier of the archive; they come while the log goes on."""


class CorruptSegment(ArchiveError):
    """An archived segment, or one of its indexes, that is not what the broker copied."""


class UnknownMetadata(ArchiveError):
    """A record about archived segments that this version cannot read."""
