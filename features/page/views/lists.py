"""Home, and the lists of tables and topics: what needs a look comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from twofold.features.page.platform_status import PlatformStatus
from twofold.status.catalog import Entry
from twofold.status.table_health import WORDS, Health, Word

MOST = 200
WEEK = timedelta(days=7)


def table_lines(platform: PlatformStatus) -> list[Health]:
    """Returns all tables, the unhealthy and then the ones that lag most first."""
    lines = [platform.healths[table.name] for table in platform.now.tables]
    return sorted(lines, key=lambda line: (WORDS.index(line.word), -line.lag.total_s, line.entry.name))


def topic_lines(platform: PlatformStatus) -> list[Health]:
    """Returns all topics, the unhealthy and then the ones with most waiting records first."""
    topics = sorted(platform.now.topics, key=lambda topic: (-(topic.lag or 0), topic.name))
    return sorted((platform.healths[topic.name] for topic in topics), key=lambda line: WORDS.index(line.word))


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
