"""Scopes as a ledger holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from tables.scope import Interval, Scope


def to_text(scopes: Sequence[Scope]) -> str:
    """Scopes as JSON."""
    return json.dumps(
        [
            {
                "values": [{"any": True} if v is ... else _tagged(v) for v in s.values],
                "interval": [s.interval.start, s.interval.end] if s.interval else None,
            }
            for s in scopes
        ]
    )


def from_text(pending: Sequence[Mapping[str, Any]]) -> list[Scope]:
    """Scopes of what JSON's parser makes of such a text."""
    return [
        Scope(
            tuple(_untagged(v) for v in item["values"]),
            Interval(*item["interval"]) if item["interval"] else None,
        )
        for item in pending
    ]


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
