"""Scopes as JSON, for ledgers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from tables.engine.ledgers.reconcile_position import closes_ms
from tables.engine.refresh.scope import Interval, Scope


def to_text(pending: Mapping[Scope, int]) -> str:
    """Scopes as JSON, each with the time at which the next of its rows closes, epoch milliseconds."""
    return json.dumps(
        [
            {
                "values": [{"any": True} if v is ... else _tagged(v) for v in s.values],
                "interval": [s.interval.start, s.interval.end] if s.interval else None,
                "closes_ms": closes_ms,
            }
            for s, closes_ms in pending.items()
        ]
    )


def from_text(pending: Sequence[Mapping[str, Any]]) -> dict[Scope, int]:
    """Scopes of what JSON's parser makes of such a text."""
    return {
        Scope(
            tuple(_untagged(v) for v in item["values"]),
            Interval(*item["interval"]) if item["interval"] else None,
        ): closes_ms(item)
        for item in pending
    }


def _tagged(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    return {"date": value.isoformat()} if isinstance(value, date) else value


def _untagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "any" in value:
        return ...
    if "date" in value:
        return date.fromisoformat(value["date"])
    return datetime.fromisoformat(value["timestamp"])
