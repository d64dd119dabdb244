"""Rewrites of history at once, as the commands do them: each is a plan that is published as soon as it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twofold.batch.ledgers.run_result import Cause, RunResult
from twofold.batch.offset_selection import OffsetSelection
from twofold.batch.plan.planning import Rewrite
from twofold.batch.plan.publisher import rewrite_now
from twofold.batch.rewrite import redrive as redriving
from twofold.batch.rewrite import rollback as taking_back
from twofold.batch.rewrite.backfill import recompute
from twofold.batch.rewrite.promotion import Promotion
from twofold.batch.rewrite.replay import decode
from twofold.infra.instants import Interval
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.open_platform import Platform

ALL = OffsetSelection()


def rewrite(live: Platform, name: str, by: Rewrite, cause: Cause, *options: Any) -> list[RunResult]:
    """The outcomes of a rewrite of one table or topic, by its full name."""
    return rewrite_now(live, [name], by, cause=cause, command=[cause, name, *map(str, options)], who="ada")


def backfill(live: Platform, table: Table, interval: Interval | None = None) -> RunResult:
    """The outcome of a backfill."""
    return rewrite(live, table.full_name, lambda copy: [recompute(copy, table, interval)], "backfill", interval)[0]


def replay(live: Platform, topic: Topic, span: OffsetSelection = ALL) -> list[RunResult]:
    """The outcomes of events, quarantine and all tables below."""
    return rewrite(live, topic.full_name, lambda copy: decode(copy, topic, span), "replay", span)


def redrive(live: Platform, topic: Topic, span: OffsetSelection = ALL, reason: str | None = None) -> list[RunResult]:
    """The outcomes of events, quarantine and all tables below."""

    def by(copy: Platform) -> Sequence[RunResult]:
        return redriving.redrive(copy, topic, span, reason)

    return rewrite(live, topic.full_name, by, "replay", "redrive", span, reason)


def rollback(live: Platform, table: Table, run: str = "") -> RunResult:
    """The outcome of taking a run of a table back."""
    return rewrite(live, table.full_name, lambda copy: [taking_back.rollback(copy, table, run)], "rollback", run)[0]


def rollback_decoded(live: Platform, topic: Topic, run: str) -> list[RunResult]:
    """The outcomes of taking a replay back."""
    return rewrite(live, topic.full_name, lambda copy: taking_back.rollback_decoded(copy, topic, run), "rollback", run)


def promote(rebuilt: Promotion) -> RunResult:
    """The outcome of the promotion of what was rebuilt."""
    name = rebuilt.table.full_name
    return rewrite(rebuilt.live, name, lambda copy: [replace(rebuilt, live=copy).promote()], "rebuild")[0]
