"""What one refresh of one table did, for people, the ledger and Airflow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tables.writer import Written

Cause = Literal["late", "backfill", "replay", "upstream", "verify"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Counts of one run on one table.

    Attributes:
        touched: input rows that could have changed it.
        scopes: groups of rows that were recomputed.
        pending: scopes that reach rows which the stream still revises; they are looked at again.
        inserted, updated, deleted: rows published.
        unexplained: rows that differ from their recomputation though nothing touched them.
        files_written: data files of the publication.
        version_before, version_after: of the Delta table; restoring the first undoes the run.
    """

    table: str
    cause: Cause
    run: str
    touched: int = 0
    scopes: int = 0
    pending: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unexplained: int = 0
    files_written: int = 0
    version_before: int | None = None
    version_after: int | None = None
    seconds: float = 0.0

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted

    def publishing(self, written: Written, version_before: int) -> Outcome:
        """The same run, with what it published over a version of the table."""
        return replace(
            self,
            inserted=written.inserted,
            updated=written.updated,
            deleted=written.deleted,
            files_written=written.files,
            version_before=version_before,
            version_after=version_before if written.version is None else written.version,
        )
