"""Finds the differences between a checkout's declarations and the live tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from twofold.infra.delta.lake import Lake
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import accepted_code, code_today
from twofold.tables.refresh.events.decoding_fingerprint import decoding

Kind = Literal["new", "changed", "removed", "rules", "new topic", "decoding", "decoding from now on"]


@dataclass(frozen=True)
class CodeChange:
    """A table or topic whose declaration differs from the live platform.

    Attributes:
        before, now: fingerprints of its definition or its decoding; empty if there is none.
    """

    table: str
    kind: Kind
    before: str = ""
    now: str = ""

    def __str__(self) -> str:
        """Describes the change in one line for people."""
        pair = f"{self.before} before, {self.now} now"
        return {
            "new": f"{self.table}: new, definition {self.now}",
            "changed": f"{self.table}: another definition, {pair}",
            "removed": f"{self.table}: no file declares it any more; its rows stay",
            "rules": f"{self.table}: other rules",
            "new topic": f"{self.table}: a new topic",
            "decoding": f"{self.table}: records are decoded otherwise, {pair}",
            "decoding from now on": f"{self.table}: records are decoded otherwise from now on, {pair}; its log is "
            "compacted, so that earlier events stay as they are",
        }[self.kind]


def code_changes(lake: Lake, registry: Registry, domains: Collection[str]) -> Iterator[CodeChange]:
    """Yields the differences between the declarations of these domains and the live topics and tables.

    The decoding of records, and the rules by which a table was checked, are known only if a stream or a rewrite of this
    software version has written there.
    """
    topics = (_change_of_topic(lake, topic) for topic in registry.topics.values() if topic.domain in domains)
    tables = (_change_of_table(lake, registry, table) for table in registry.in_order() if table.domain in domains)
    yield from (change for change in (*topics, *tables) if change)
    for name in registry.removed(lake.names()):
        if name.partition(".")[0] in domains:
            yield CodeChange(name, "removed")


def _change_of_topic(lake: Lake, topic: Topic) -> CodeChange | None:
    name, now = topic.full_name, decoding(topic)
    if not lake.exists(name):
        return CodeChange(name, "new topic")
    fact = accepted_code(lake, name)
    if fact is None or fact.is_of(now, whole=True):
        return None
    return CodeChange(name, "decoding from now on" if topic.compacted else "decoding", fact.code, now)


def _change_of_table(lake: Lake, registry: Registry, table: Table) -> CodeChange | None:
    name, now = table.full_name, code_today(table, registry)
    if not lake.exists(name):
        return CodeChange(name, "new", now=now.code)
    fact = accepted_code(lake, name)
    if fact and not fact.is_of(now.code, whole=True):
        return CodeChange(name, "changed", fact.code, now.code)
    return CodeChange(name, "rules") if fact and fact.rules not in ("", now.rules) else None
