"""Stores the days with rows of each table, and with closed rows, as defaults for the forms of backfills."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from twofold.infra.atomic_write import write_atomically
from twofold.infra.project.settings import Settings


class Days(NamedTuple):
    """The first and last day of a table's rows; `closed` is the newest day without open rows."""

    first: date
    last: date
    closed: date


def keep_closed_days(settings: Settings, status: Any, domain: str) -> None:
    """Stores the days of a domain's tables for `read_closed_days`.

    Args:
        status: the JSON of `twofold status`.
    """
    kept = {name: [day.isoformat() for day in days] for name, days in closed_days(status, domain).items()}
    file = _file(settings, domain)
    text = json.dumps(kept)
    if not file.exists() or file.read_text() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text, lasting=False)


def read_closed_days(settings: Settings, domain: str) -> Mapping[str, Days]:
    """Reads the days of a domain's tables, by full name; empty before the first check of the domain's stream."""
    try:
        kept = json.loads(_file(settings, domain).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: Days(*map(date.fromisoformat, days)) for name, days in kept.items()}


def closed_days(status: Any, domain: str) -> dict[str, Days]:
    """Computes the days of the tables whose rows have a time, by full name."""
    watermarks = {f"{query['domain']}.{query['query']}": query["watermark"] for query in status["queries"]}
    return {
        table["name"]: _days(table["oldest"], table["newest"], watermarks.get(table["name"]))
        for table in status["tables"]
        if table["name"].startswith(f"{domain}.") and table["oldest"]
    }


def _days(oldest: str, newest: str, watermark: str | None) -> Days:
    first, last = (datetime.fromisoformat(text).date() for text in (oldest, newest))
    closed = last if watermark is None else datetime.fromisoformat(watermark).date() - timedelta(days=1)
    return Days(first, last, max(first, min(last, closed)))


def _file(settings: Settings, domain: str) -> Path:
    return settings.home / "run" / "days" / f"{domain}.json"
