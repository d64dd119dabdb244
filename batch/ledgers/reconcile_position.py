"""Reads the position of reconcile in the inputs of each table, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from twofold.infra.delta.lake import Lake
from twofold.infra.instants import Interval
from twofold.tables.refresh.json_values import to_plain_json
from twofold.tables.refresh.scope import Scope

POSITIONS = "ledger.positions"
"""One row per table, replaced by each reconcile that had work; see `ReconcilePosition`."""
COLUMNS = ("table", "consumed", "stream", "pending", "fingerprint")
_TAGGED = {"timestamp": datetime, "date": date, "decimal": Decimal, "binary": bytes}  # a datetime is a date, too
_READ: Mapping[str, Callable[[str], Any]] = {
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "decimal": Decimal,
    "binary": bytes.fromhex,
}
_FAR = 100  # commits that are looked through again by each reconcile rather than noted


@dataclass(frozen=True, kw_only=True)
class ReconcilePosition:
    """The position that a finished reconcile of a table leaves for the next one.

    Attributes:
        consumed: input -> version through which its changes were checked; under the table's own name, the version
            through which its corrections were recorded; under the name given by `splits`, the number of split commits
            of an input.
        stream: the stream whose output was reconciled; for another one reconcile starts again at version 0.
        pending: scopes with rows that were still open -> the time when the next of these closes, epoch milliseconds.
        fingerprint: of the definition by which it recomputed.
    """

    consumed: Mapping[str, int] = field(default_factory=dict)
    stream: str = ""
    pending: Mapping[Scope, int] = field(default_factory=dict)
    fingerprint: str = ""

    @property
    def versions(self) -> Mapping[str, int]:
        """The versions among `consumed`, by table."""
        return {name: version for name, version in self.consumed.items() if name != splits(name.partition("#")[0])}

    def as_row(self, table: str) -> dict[str, str]:
        """Converts the position to the columns of the ledger."""
        consumed = json.dumps(dict(self.consumed))
        pending = json.dumps([_as_json(scope, closes_ms) for scope, closes_ms in self.pending.items()])
        return dict(zip(COLUMNS, (table, consumed, self.stream, pending, self.fingerprint), strict=True))


def is_far(consumed: Mapping[str, int], looked_at: Mapping[str, int]) -> bool:
    """Whether the position lags far enough to be worth a commit."""
    return any(version - consumed.get(name, -1) > _FAR for name, version in looked_at.items())


def splits(name: str) -> str:
    """Returns the name under which `consumed` counts the split commits of an input."""
    return f"{name}#splits"


def reconcile_positions(lake: Lake) -> dict[str, ReconcilePosition]:
    """Reads the positions by table; a table that was never reconciled is left out."""
    if not lake.exists(POSITIONS):
        return {}
    rows = lake.open(POSITIONS).scan(columns=list(COLUMNS)).read_all()
    return {
        table: ReconcilePosition(
            consumed=json.loads(consumed),
            stream=stream,
            pending={_of_json(item): item["closes_ms"] for item in json.loads(pending)},
            fingerprint=mark,
        )
        for table, consumed, stream, pending, mark in zip(*(rows.column(c).to_pylist() for c in COLUMNS), strict=True)
    }


def _as_json(scope: Scope, closes_ms: int) -> dict[str, Any]:
    return {
        "values": [{"any": True} if v is ... else _tagged(v) for v in scope.values],
        "interval": [scope.interval.start, scope.interval.end] if scope.interval else None,
        "closes_ms": closes_ms,
    }


def _of_json(item: Mapping[str, Any]) -> Scope:
    interval = Interval(*item["interval"]) if item["interval"] else None
    return Scope(tuple(_untagged(v) for v in item["values"]), interval)


def _tagged(value: Any) -> Any:
    tag = next((tag for tag, kind in _TAGGED.items() if isinstance(value, kind)), None)
    return value if tag is None else {tag: to_plain_json(value)}


def _untagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    [(tag, text)] = value.items()
    return ... if tag == "any" else _READ[tag](text)
