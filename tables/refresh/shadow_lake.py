"""A shadow lake in which one table, or the state of its stream, is rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from twofold.infra.atomic_write import remove_folder
from twofold.infra.delta.delta_writer import CHANGE
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import accepted_code, is_accepted
from twofold.tables.refresh.events.decoding_fingerprint import decoding
from twofold.tables.refresh.open_platform import Platform, ensure_domain
from twofold.tables.refresh.row_diff import Difference, differences_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Purpose = Literal["shadow", "recovery"]
"""What a shadow is for: the table, or its stream's state. The two do not meet."""


def shadow_settings(settings: Settings, table: Table, purpose: Purpose = "shadow") -> Settings:
    """Returns settings that separate all data of the table's shadow: tables, checkpoints, ledgers."""
    return settings.of_copy(settings.home / purpose / table.full_name)


def shadow(platform: Platform, table: Table, purpose: Purpose = "shadow", *, shares_events: bool = False) -> Platform:
    """Opens a lake of its own for the table and everything upstream, as far as it was filled.

    Its streams may run while those of the same names do.

    Args:
        shares_events: the events are those of the live platform, with which the shadow shares nothing otherwise.
    """
    registry, live = platform.registry.above(table), platform.lake
    settings = shadow_settings(live.settings, table, purpose)
    lake = _SharingEvents(settings, live, frozenset(registry.topics)) if shares_events else Lake(settings)
    for domain in registry.domains:
        ensure_domain(lambda: platform.spark, lake, registry, domain)
    return Platform(lambda: platform.spark.newSession(), lake, registry)


@dataclass(frozen=True)
class _SharingEvents(Lake):
    """A lake of its own but for some tables, which are those of another one."""

    other: Lake
    shared: frozenset[str]

    def uri(self, name: str) -> str:
        return self.other.uri(name) if name.removesuffix(QUARANTINE) in self.shared else super().uri(name)


def is_stale(shadow: Platform) -> bool:
    """Whether the shadow has records of another decoding, or a table of another definition, than the current one."""
    lake, registry = shadow.lake, shadow.registry
    facts = {name: accepted_code(lake, name) for name in registry.topics}
    return any(fact and fact.code != decoding(registry.topics[name]) for name, fact in facts.items()) or any(
        not is_accepted(lake, table, registry) for table in registry.tables.values()
    )


def rebuild_lock(settings: Settings, table: str) -> Path:
    """Returns the lock file that a rebuild of a table holds, by the table's full name."""
    return settings.home / "run" / f"{table}.rebuild.lock"


def drop(settings: Settings, table: Table, purpose: Purpose = "shadow") -> None:
    """Deletes the table's shadow, if there is one."""
    remove_folder(shadow_settings(settings, table, purpose).home)


@dataclass(frozen=True, kw_only=True)
class RebuildComparison:
    """The differences between the live table and the rebuilt one.

    Attributes:
        rows: rows of the new one that are settled: neither open nor touched by later records.
        missing, extra, changed: rows that the live table lacks, should not have, has otherwise.
        new_columns, gone_columns: of the new one, and of the live one only.
        examples: the first rows that differ; `digest`: of all of them, and of the columns.
        before: rows that close before it were compared, or that are dated before it; None: all.
    """

    table: str
    rows: int
    missing: int
    extra: int
    changed: int
    new_columns: Sequence[str] = ()
    gone_columns: Sequence[str] = ()
    examples: Sequence[Difference] = ()
    before: datetime | None = None
    digest: str = ""

    @property
    def differing(self) -> int:
        """The number of differing rows."""
        return self.missing + self.extra + self.changed

    @property
    def is_equal(self) -> bool:
        return not (self.differing or self.new_columns or self.gone_columns)


def compare_rows(table: Table, made: DataFrame, changes: DataFrame, before: datetime | None) -> RebuildComparison:
    """Counts the differences between rebuilt rows and those of the live table."""
    counts = {row[CHANGE]: row["count"] for row in changes.groupBy(CHANGE).count().collect()}
    return RebuildComparison(
        table=table.full_name,
        rows=made.count(),
        missing=counts.get("insert", 0),
        extra=counts.get("delete", 0),
        changed=counts.get("update", 0),
        examples=differences_of(table, pa.table(changes.limit(5).toArrow())),
        before=before,
    )
