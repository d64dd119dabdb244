"""The ledger of corrections held against the tables' own change data feeds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from twofold.testing.worlds import World

Row = Mapping[str, Any]
BEFORE, AFTER = ("update_preimage", "delete"), ("insert", "update_postimage")


def assert_ledger_explains(world: World, tables: Iterable[str]) -> None:
    """The stream's changes and the corrections, in the order of versions, make each table what it is.

    Every row that a batch run changed stands in the ledger once, as it was and as it became, and nothing else does.
    """
    ledger = world.rows("ledger.corrections").to_pylist()
    for name in tables:
        corrections = [c for c in ledger if c["table"] == name]
        key = world.registry.find_table(name).primary_key
        runs = {
            commit.version
            for commit in world.lake.commits(name, -1, world.lake.version(name))
            if commit.changes and "run" in commit.info
        }
        feed = _feed(world, name)
        changed = [row for row in feed if row["_commit_version"] in runs]
        assert _entries(corrections) == _expected(changed, key), name
        streamed = [row for row in feed if row["_commit_version"] not in runs and row["_change_type"] not in BEFORE]
        streamed += [row for row in feed if row["_commit_version"] not in runs and row["_change_type"] == "delete"]
        assert _folded(streamed, corrections, key) == {_key(row, key): _text(row) for row in _rows(world, name)}, name


def _entries(corrections: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    sides = ((c, side) for c in corrections for side in ("before", "after") if c[side] is not None)
    return Counter((c["version"], _again(c["key"]), side, _again(c[side])) for c, side in sides)


def _expected(changed: Sequence[Row], key: Sequence[str]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (row["_commit_version"], _key(row, key), "before" if row["_change_type"] in BEFORE else "after", _text(row))
        for row in changed
    )


def _folded(streamed: Sequence[Row], corrections: Sequence[Row], key: Sequence[str]) -> dict[str, str]:
    events = [
        (row["_commit_version"], _key(row, key), _text(row) if row["_change_type"] in AFTER else None)
        for row in streamed
    ]
    events += [(c["version"], _again(c["key"]), _again(c["after"]) if c["after"] else None) for c in corrections]
    table: dict[str, str] = {}
    for _, name, text in sorted(events, key=lambda event: event[0]):
        if text is None:
            table.pop(name, None)
        else:
            table[name] = text
    return table


def _feed(world: World, name: str) -> list[dict[str, Any]]:
    return pa.table(world.lake.open(name).load_cdf(starting_version=0)).to_pylist()


def _rows(world: World, name: str) -> list[dict[str, Any]]:
    return world.rows(name).to_pylist()


def _key(row: Row, key: Sequence[str]) -> str:
    return json.dumps({column: _plain(row[column]) for column in key}, sort_keys=True)


def _text(row: Row) -> str:
    return json.dumps(
        {c: _plain(v) for c, v in row.items() if not c.startswith(("_commit", "_change"))}, sort_keys=True
    )


def _again(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


def _plain(value: Any) -> Any:
    """As the ledger writes it: times in ISO 8601, bytes in hex, decimals as texts."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, date) else value
