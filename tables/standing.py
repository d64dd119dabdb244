"""Where the last reconcile of each table stands, read from the ledger of runs without an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tables.lake import Lake

RUNS = "ledger.runs"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a finished reconcile of a table left for the next one.

    Attributes:
        consumed: input -> version through which its changes were looked at; the table's own version, under its name,
            through which its corrections were recorded; and what else a run looked through, see `tables.standing`.
        stream: the stream whose output was reconciled.
        pending: scopes that reached open rows, as `tables.ledgers` writes them.
        fingerprint: of the definition by which it recomputed.
    """

    consumed: Mapping[str, int]
    stream: str
    pending: Sequence[Mapping[str, Any]]
    fingerprint: str


def splits(name: str) -> str:
    """The name under which `consumed` counts the split commits of an input."""
    return f"{name}#splits"


def watermark(name: str) -> str:
    """The name under which `consumed` keeps the watermark of a table, epoch milliseconds."""
    return f"{name}#watermark_ms"


def standings(lake: Lake) -> dict[str, Standing]:
    """By table; a table that was never reconciled is not in it.

    Raises:
        BadArgument: there is no ledger yet.
    """
    columns = ["table", "recorded_at", "run", "consumed", "stream", "pending", "fingerprint"]
    rows = lake.open(RUNS).scan(columns=columns).read_all()
    newest: dict[str, tuple[Any, ...]] = {}
    for row in zip(*(rows.column(column).to_pylist() for column in columns), strict=True):
        table, at, run, consumed = row[:4]
        if consumed is not None and (table not in newest or (at, run) > newest[table][1:3]):
            newest[table] = row
    return {
        table: Standing(consumed=json.loads(consumed), stream=stream, pending=json.loads(pending), fingerprint=mark)
        for table, _, _, consumed, stream, pending, mark in newest.values()
    }
