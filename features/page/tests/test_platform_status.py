"""What is known is read from the store; while someone looks, one command makes it newer."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from twofold.features.page.platform_status import StatusCache
from twofold.features.page.tests.small_platform import CATALOG, saved, snapshot
from twofold.infra.process.twofold_command import Answer
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import plain
from twofold.status import store
from twofold.status.symptoms.diagnosis import symptoms_of


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run, instead of running them."""
    ran: list[list[str]] = []

    def run(*words: str, **_: Any) -> Answer:
        ran.append(list(words))
        return Answer(0)

    monkeypatch.setattr("twofold.features.page.platform_status.run_command", run)
    return ran


def looked(cache: StatusCache) -> Any:
    known = cache.newest()
    for thread in threading.enumerate():
        if thread.name == "looks at the platform":
            thread.join()
    return known


def test_the_newest_snapshot_is_read_and_read_once(settings: Settings, commands: list[list[str]]) -> None:
    cache = StatusCache(settings)
    now = saved(settings)
    known = looked(cache)
    assert known.symptoms == symptoms_of(now) != []
    assert plain(known.catalog) == plain(CATALOG)
    assert looked(cache) is known
    saved(settings, snapshot(at=now.at.replace(year=2013)))
    newer = looked(cache)
    assert (newer.now.at.year, newer.is_stale, known.is_stale) == (2013, True, False)
    assert commands == [], "it is not 20 s old"


def test_what_is_old_is_looked_at_again_by_one_command(
    settings: Settings, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looked(StatusCache(settings)) is None
    assert commands == [["status", "--json"]]
    saved(settings)
    latest = store.Store(settings).latest("snapshot")
    assert latest is not None
    old = replace(latest, at=latest.at.replace(year=2013))
    catalog = store.Store(settings).latest("catalog")
    monkeypatch.setattr(store.Store, "latest", lambda _, what: old if what == "snapshot" else catalog)
    cache = StatusCache(settings)
    assert looked(cache) is not None
    assert len(commands) == 2
    assert looked(StatusCache(settings, advance=False)) is not None
    assert len(commands) == 2
    with cache._running:
        assert looked(cache) is not None
    assert len(commands) == 2, "one at a time"
