"""Chores of searches: indexes that no table declares any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from twofold.batch.chores.doomed import Doomed
from twofold.features.outputs.output_chores import left_by_undeclared
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.registry import Registry


def undeclared_indexes(lake: Lake, registry: Registry, now: datetime) -> Iterator[Doomed]:
    """Finds indexes of outputs that no table declares and nothing moves on."""
    yield from left_by_undeclared(lake, registry, now, lake.settings.home / "search")
