"""The newest snapshot and catalog of the status store, and a command that makes newer ones."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from twofold.infra.process.twofold_command import run_command
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import restored
from twofold.status.catalog import Entry
from twofold.status.parts.snapshot import Snapshot
from twofold.status.store import Store
from twofold.status.symptoms.diagnosis import symptoms_of
from twofold.status.symptoms.symptom import Symptom
from twofold.status.table_health import Health, healths_of

STALE_S = 120.0
"""After so long what is known is shown as old."""
ADVANCE_AFTER_S = 20.0
_LIMIT_S = 120.0
_log = logging.getLogger("twofold.features.page")


@dataclass(frozen=True)
class PlatformStatus:
    """The platform as it was last seen."""

    now: Snapshot
    catalog: Mapping[str, Entry]
    symptoms: Sequence[Symptom]
    healths: Mapping[str, Health]

    @property
    def age_s(self) -> float:
        return (datetime.now(UTC) - self.now.at).total_seconds()

    @property
    def is_stale(self) -> bool:
        return self.age_s > STALE_S


class StatusCache:
    """Reads the store; while someone looks, has `twofold status` make it newer.

    Args:
        advance: whether to do that; else it stays as commands and the watch of the streams leave it.
    """

    def __init__(self, settings: Settings, *, advance: bool = True) -> None:
        self._settings, self._store, self._advance = settings, Store(settings), advance
        self._platform: PlatformStatus | None = None
        self._running = threading.Lock()

    def newest(self) -> PlatformStatus | None:
        """Returns what is known; None if no command has looked at the platform yet."""
        snapshot = self._store.latest("snapshot")
        if snapshot is None or (datetime.now(UTC) - snapshot.at).total_seconds() > ADVANCE_AFTER_S:
            self._start_advance()
        catalog = self._store.latest("catalog")
        if snapshot is None or catalog is None:
            return None
        platform, at = self._platform, datetime.fromisoformat(snapshot.value["at"])
        if platform is None or platform.now.at != at:
            now, entries = restored(Snapshot, snapshot.value), restored(Mapping[str, Entry], catalog.value)
            now = replace(now, tables=[table for table in now.tables if table.name in entries])
            symptoms = symptoms_of(now)
            self._platform = platform = PlatformStatus(now, entries, symptoms, healths_of(now, symptoms, entries))
        return platform

    def _start_advance(self) -> None:
        if self._advance and self._running.acquire(blocking=False):
            threading.Thread(target=self._look, name="looks at the platform", daemon=True).start()

    def _look(self) -> None:
        """Runs one command that looks at the platform and saves what it finds."""
        try:
            if fault := run_command("status", "--json", limit_s=_LIMIT_S).fault:
                _log.warning("not advanced error=%s", fault)
        finally:
            self._running.release()
