"""Stores the progress of each query in a file that status and Airflow read."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from twofold.infra.atomic_write import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from twofold.infra.project.settings import Settings


_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A query after its last micro-batch.

    Attributes:
        query: `ingest`, or the table's name.
        batch: number of the micro-batch.
        watermark: rows that close before it are closed; None if rows never close.
        rows_in, rows_out: of the micro-batch.
        offsets: of ingest: topic -> partition -> the next offset to read.
        versions: of a table: input -> the next Delta version to read.
        batch_s: seconds of the micro-batch spent by the platform: write and bookkeeping.
        freshness_s: seconds from the broker's append of the newest record to the commit of its rows.
        error: why the query has failed; empty while it runs.
        failed_at: when it last failed with that error.
    """

    domain: str
    query: str
    batch: int = -1
    watermark: datetime | None = None
    rows_in: int = 0
    rows_out: int = 0
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    updated_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    batch_s: float = 0.0
    freshness_s: float | None = None
    error: str = ""
    failed_at: datetime | None = None


def write(settings: Settings, progress: Progress) -> None:
    """Replaces the stored progress of a query, atomically."""
    with _lock:
        _replace(settings, progress)


def note_error(settings: Settings, domain: str, query: str, error: str) -> None:
    """Adds to a query's last progress why it failed; an empty error: it runs.

    A micro-batch that ends meanwhile in another thread is not undone.
    """
    with _lock:
        last = last_of(settings, domain, query)
        if error or last.error:
            _replace(settings, replace(last, error=error, failed_at=datetime.now(UTC) if error else None))


def last_of(settings: Settings, domain: str, query: str) -> Progress:
    """Reads the last progress of a query, which may never have run."""
    file = _file(settings, domain, query)
    return _parse(json.loads(file.read_text())) if file.exists() else Progress(domain=domain, query=query)


def read(settings: Settings, domain: str | None = None) -> list[Progress]:
    """Reads the progress of every query that ever ran, ordered by domain and query."""
    paths = sorted(settings.progress.glob(f"{domain or '*'}/*.json"))
    return [_parse(json.loads(file.read_text())) for file in paths]


def _parse(facts: dict[str, object]) -> Progress:
    for name in ("watermark", "updated_at", "failed_at"):
        if facts.get(name) is not None:
            facts[name] = datetime.fromisoformat(str(facts[name]))
    offsets: Mapping[str, Mapping[str, int]] = facts["offsets"]  # type: ignore[assignment]
    facts["offsets"] = {topic: {int(p): o for p, o in ends.items()} for topic, ends in offsets.items()}
    return Progress(**facts)  # type: ignore[arg-type]


def _file(settings: Settings, domain: str, query: str) -> Path:
    return settings.progress / domain / f"{query}.json"


def _replace(settings: Settings, progress: Progress) -> None:
    file = _file(settings, progress.domain, progress.query)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps(asdict(progress), default=lambda t: t.isoformat()), lasting=False)
