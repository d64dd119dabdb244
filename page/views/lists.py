"""Home, and the lists of tables and topics: what needs a look comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from twofold.page.platform_status import PlatformStatus
from twofold.status.catalog import Entry
from twofold.status.parts.snapshot import TopicState
from twofold.status.table_health import WORDS, Health, Lag, Word

MOST = 200
WEEK = timedelta(days=7)


@dataclass(frozen=True, kw_only=True)
class TableLine:
    """A table in a list."""

    name: str
    health: Health
    lag: Lag
    freshness_s: float | None
    rows: int | None
    late: int | None
    corrections: int | None
    owner: str | None


@dataclass(frozen=True, kw_only=True)
class TopicLine:
    """A topic in a list."""

    state: TopicState
    entry: Entry
    health: Health


def table_lines(platform: PlatformStatus) -> list[TableLine]:
    """Returns all tables, the unhealthy and then the ones that lag most first."""
    lines = []
    for state in platform.now.tables:
        query, entry = platform.check.query(state.name), platform.catalog[state.name]
        lines.append(
            TableLine(
                name=state.name,
                health=platform.check.health(state.name),
                lag=platform.lags[state.name],
                freshness_s=query.freshness_s if query else None,
                rows=state.rows,
                late=state.late,
                corrections=state.corrections,
                owner=entry.owner,
            )
        )
    return sorted(lines, key=lambda line: (WORDS.index(line.health.word), -line.lag.total_s, line.name))


def topic_lines(platform: PlatformStatus) -> list[TopicLine]:
    """Returns all topics, the unhealthy and then the ones with most waiting records first."""
    lines = [
        TopicLine(state=state, entry=platform.catalog[state.name], health=platform.check.health(state.name))
        for state in platform.now.topics
    ]
    return sorted(lines, key=lambda line: (WORDS.index(line.health.word), -(line.state.lag or 0), line.state.name))


def counts_by_word(healths: Sequence[Health]) -> dict[Word, int]:
    """Counts by the word for the health, the worst word first."""
    counts = Counter(health.word for health in healths)
    return {word: counts[word] for word in WORDS}


def found(platform: PlatformStatus, query: str) -> list[str]:
    """Returns the topics and tables that a word is part of the name, a column or the description of; best first."""
    word = query.strip().lower()

    def rank(entry: Entry) -> int | None:
        if word in (entry.name.lower(), entry.name.lower().partition(".")[2]):
            return 0
        if word in entry.name.lower():
            return 1
        if any(word in column["name"].lower() for column in entry.columns):
            return 2
        return 3 if word in entry.description.lower() else None

    ranked = [(place, name) for name, entry in platform.catalog.items() if word and (place := rank(entry)) is not None]
    return [name for _, name in sorted(ranked)][:MOST]
