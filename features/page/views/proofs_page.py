"""The page of proofs: each table and topic by day, and what was proven of it; a day without a proof is grey."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from twofold.features.page.platform_status import PlatformStatus
from twofold.infra.delta.lake import Lake
from twofold.status.parts.snapshot import TableState, TopicState
from twofold.status.proofs import OF_TOPICS, Proof, proof_days

DAYS = 28
Days = Sequence[tuple[date, Proof | None]]


@dataclass(frozen=True, kw_only=True)
class ProofLine:
    """A table with a proof, or None, for each day."""

    table: TableState
    days: Days


@dataclass(frozen=True, kw_only=True)
class TopicProofs:
    """A topic with a proof, or None, for each day, by what was proven; what was never proven is left out but the first.

    Attributes:
        days: `each offset once` and so on -> its days.
    """

    topic: TopicState
    days: Mapping[str, Days]


@dataclass(frozen=True, kw_only=True)
class ProofsPage:
    """The content of the page of proofs."""

    tables: Sequence[ProofLine]
    topics: Sequence[TopicProofs]
    days: Sequence[date]


def proofs_page(platform: PlatformStatus, lake: Lake) -> ProofsPage:
    """Returns all tables: those with unexplained rows first, then those whose last full proof is oldest; all topics."""
    today = platform.now.at.date()
    days = [today - timedelta(days=DAYS - 1 - n) for n in range(DAYS)]
    since = platform.now.at.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
    proofs = proof_days(lake, since)

    def days_of(name: str, kind: str) -> Days:
        return [(day, proofs.get((name, kind), {}).get(day)) for day in days]

    tables = [ProofLine(table=table, days=days_of(table.name, "audit")) for table in platform.now.tables]
    topics = [
        TopicProofs(
            topic=topic,
            days={
                words: days_of(topic.name, kind)
                for n, (kind, words) in enumerate(OF_TOPICS.items())
                if n == 0 or (topic.name, kind) in proofs
            },
        )
        for topic in platform.now.topics
    ]
    return ProofsPage(tables=sorted(tables, key=_urgency), topics=topics, days=days)


def _urgency(line: ProofLine) -> tuple[int, float, str]:
    audit = line.table.audit
    since = audit.all_since.timestamp() if audit and audit.all_since else 0.0
    return (-(audit.unexplained if audit else 0), since, line.table.name)
