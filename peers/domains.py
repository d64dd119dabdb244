"""Which domain a table of the benchmark is of, and where that is declared."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.nexmark import DECLARED
from peers.engine_process import NEXMARK
from twofold.tables.declare.registry import Registry, load


def domain_of(table: str) -> str:
    """The domain of a table by its bare name."""
    return "nexmark" if table in NEXMARK else "flights"


def registry_of(tables: Sequence[str]) -> Registry:
    """The declarations of these tables, which are of one domain."""
    return load(DECLARED) if domain_of(tables[0]) == "nexmark" else load()
