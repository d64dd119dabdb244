"""Judges each topic and table by a snapshot: one word for its health, and how far behind it is because of whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from twofold.infra.project.chosen_domains import driver_name
from twofold.infra.text.printable import shown_duration
from twofold.status.catalog import Entry
from twofold.status.health import INGEST_QUERY, STALLED_S, WELL, is_slow
from twofold.status.snapshot import QueryState, Snapshot, TableState, TopicState

Word = Literal["failed", "degraded", "unknown", "healthy"]
WORDS: tuple[Word, ...] = ("failed", "degraded", "unknown", "healthy")
"""The worst first."""
Finding = tuple[Word, str]


@dataclass(frozen=True)
class Health:
    """The health of a topic or table: the worst of what was found.

    Attributes:
        why: each finding in words, the worst first; for a healthy one what was looked at.
    """

    word: Word
    why: tuple[str, ...]


@dataclass(frozen=True)
class Lag:
    """How long the oldest change waits for a table.

    Attributes:
        own_s: changes of its inputs that it has not read wait for so long, at least; None: not known.
        inherited_s: and the changes of its inputs for so long; the greatest of them.
        slowest: the input that has that; None: no input lags.
    """

    own_s: float | None
    inherited_s: float
    slowest: str | None

    @property
    def total_s(self) -> float:
        return (self.own_s or 0.0) + self.inherited_s


class Judge:
    """Judges the topics and tables of one snapshot."""

    def __init__(self, now: Snapshot, catalog: Mapping[str, Entry]) -> None:
        self._now, self._catalog = now, catalog
        self._queries = {f"{q.domain}.{q.query}": q for q in now.queries}
        states: list[TopicState | TableState] = [*now.topics, *now.tables]
        self._states = {state.name: state for state in states}
        self._processes = {process.name: process.state for process in now.processes}

    def health(self, name: str) -> Health:
        """Returns the health of a topic or table, by its full name; it is unknown if the snapshot does not have it."""
        state = self._states.get(name)
        if state is None:
            return Health("unknown", ("it was declared after the last look",))
        found = [
            *self._of_domain(name),
            *(self._of_topic(state) if isinstance(state, TopicState) else self._of_table(state)),
        ]
        found.sort(key=lambda finding: WORDS.index(finding[0]))
        return Health(found[0][0], tuple(text for _, text in found)) if found else Health("healthy", self._well(state))

    def lags(self) -> dict[str, Lag]:
        """Returns the lag of every topic and table, by full name."""
        lags: dict[str, Lag] = {}
        for name, entry in self._catalog.items():  # each after what it reads
            above = {source: lags[source].total_s for source in entry.inputs if source in lags}
            slowest = max(above, key=lambda source: above[source], default=None)
            inherited_s = above[slowest] if slowest else 0.0
            lags[name] = Lag(self._own_s(name), inherited_s, slowest if inherited_s else None)
        return lags

    def query(self, name: str) -> QueryState | None:
        """Returns the query that writes a topic's events or a table; None if it never ran."""
        is_topic = isinstance(self._states.get(name), TopicState)
        return self._queries.get(f"{name.partition('.')[0]}.{INGEST_QUERY}" if is_topic else name)

    def _own_s(self, name: str) -> float | None:
        query, state = self.query(name), self._states.get(name)
        if isinstance(state, TopicState):
            if not state.lag or query is None:
                return None if state.lag is None else 0.0
            return self._idle_s(query)
        if query is None or query.behind is None:
            return None
        return (query.behind_s or 0.0) if query.behind else 0.0

    def _idle_s(self, query: QueryState) -> float:
        return (self._now.at - query.updated_at).total_seconds()

    def _of_domain(self, name: str) -> Iterator[Finding]:
        driver = driver_name(name.partition(".")[0])
        if not self._now.processes:
            yield "unknown", "the platform is down: what is shown is what was last known"
        elif (state := self._processes.get(driver, "not supervised")) not in WELL:
            yield "degraded", f"the process {driver} is {state}"
        if (query := self.query(name)) and query.error:
            yield "failed", f"its query has failed: {query.error}"

    def _of_topic(self, topic: TopicState) -> Iterator[Finding]:
        yield from (("failed", str(gap)) for gap in self._now.open_gaps if gap.topic == topic.name)
        yield from (("failed", one.fault) for one in self._now.captures if one.topic == topic.name and one.fault)
        if self._now.processes and topic.produced is None:
            yield "unknown", "the broker does not answer"
        query = self.query(topic.name)
        if topic.lag and query and self._idle_s(query) > STALLED_S:
            yield "degraded", f"{topic.lag:,} records wait, no micro-batch for {shown_duration(self._idle_s(query))}"

    def _of_table(self, table: TableState) -> Iterator[Finding]:
        if table.version is None:
            yield "unknown", "it was not computed yet"
        if table.audit and table.audit.unexplained:
            yield "failed", f"audits found {table.audit.unexplained:,} rows that nothing explains"
        for output in self._now.outputs:
            if output.table == table.name and output.has_failed:
                yield "failed", f"its output {output.output} has failed: {output.error}"
        query = self.query(table.name)
        if query is None:
            return
        idle_s, limit_s = self._idle_s(query), self._catalog[table.name].fresh_within_s
        if is_slow(query, limit_s, idle_s):
            seen, limit = shown_duration(query.freshness_s), shown_duration(limit_s)
            yield "degraded", f"rows are visible {seen} after the broker had them; the limit is {limit}"
        if query.behind and idle_s > STALLED_S and not query.error:
            yield (
                "degraded",
                f"{query.behind:,} versions of its inputs wait, no micro-batch for {shown_duration(idle_s)}",
            )

    def _well(self, state: TopicState | TableState) -> tuple[str, ...]:
        query = self.query(state.name)
        written = (f"written {shown_duration(self._idle_s(query))} before",) if query else ()
        if isinstance(state, TopicState):
            return (*written, "no record is lost")
        fresh = ("fresh",) if query and query.freshness_s is not None else ()
        return (*written, *fresh, "audited, every row is explained" if state.audit else "no audit yet")
