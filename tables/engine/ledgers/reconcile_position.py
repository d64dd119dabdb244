"""The position of reconcile in the inputs of each table, read without an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tables.engine.delta.lake import Lake

POSITIONS = "ledger.positions"
"""One row per table, replaced by each reconcile that had work; see `ReconcilePosition`."""
_FAR = 100  # commits that are looked through again by each reconcile rather than noted


@dataclass(frozen=True, kw_only=True)
class ReconcilePosition:
    """What a finished reconcile of a table left for the next one.

    Attributes:
        consumed: input -> version through which its changes were looked at; the table's own version, under its name,
            through which its corrections were recorded; and what else a run looked through, see
            `tables.engine.ledgers.reconcile_position`.
        stream: the stream whose output was reconciled.
        pending: scopes that reached open rows, as `tables.engine.refresh.scope_json` writes them.
        fingerprint: of the definition by which it recomputed.
    """

    consumed: Mapping[str, int]
    stream: str
    pending: Sequence[Mapping[str, Any]]
    fingerprint: str


def is_far(consumed: Mapping[str, int], looked_at: Mapping[str, int]) -> bool:
    """Whether it pays to note that these versions of inputs were looked through, too."""
    return any(version - consumed.get(name, -1) > _FAR for name, version in looked_at.items())


def closes_ms(item: Mapping[str, Any]) -> int:
    """When the next row of a pending scope closes; long ago where an older ledger does not say it."""
    return int(item.get("closes_ms", 0))


def splits(name: str) -> str:
    """The name under which `consumed` counts the split commits of an input."""
    return f"{name}#splits"


def reconcile_positions(lake: Lake) -> dict[str, ReconcilePosition]:
    """By table; a table that was never reconciled is not in it.

    Raises:
        BadArgument: there is no ledger yet.
    """
    columns = ["table", "consumed", "stream", "pending", "fingerprint"]
    rows = lake.open(POSITIONS).scan(columns=columns).read_all()
    return {
        table: ReconcilePosition(
            consumed=json.loads(consumed), stream=stream, pending=json.loads(pending), fingerprint=mark
        )
        for table, consumed, stream, pending, mark in zip(*(rows.column(c).to_pylist() for c in columns), strict=True)
    }
