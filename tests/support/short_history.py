"""Trims a table as months of commits would."""

from __future__ import annotations

from twofold.infra.delta.lake import Lake
from twofold.infra.delta.trim import Limits, Trim

NOTHING = Limits(history_ms=0, commits=0, versions_ms=0, bytes=0, least_ms=0)


def trim_to_the_newest(lake: Lake, name: str) -> None:
    """Leave the newest version alone: no reader needs an older one."""
    for holder in lake.history(name).holds():
        lake.history(name).end(holder)
    lake.open(name).create_checkpoint()
    Trim(lake, name, NOTHING).now()
    assert lake.history(name).floor().changes == lake.version(name)
