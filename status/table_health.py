"""The health of each topic and table in one word, by its symptoms, and how far behind it is because of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from twofold.infra.text.printable import shown_duration
from twofold.status.catalog import Entry
from twofold.status.parts.snapshot import BROKER, INGEST, QueryState, Snapshot, TableState, TopicState
from twofold.status.symptoms.symptom import SEVERITIES, Severity, Symptom

Word = Severity | Literal["healthy"]
WORDS: tuple[Word, ...] = (*SEVERITIES, "healthy")
"""The worst first."""


@dataclass(frozen=True)
class Health:
    """The health of a topic or table: the worst severity of its symptoms.

    Attributes:
        why: what is wrong, the worst first; of a healthy one what was looked at.
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


class HealthCheck:
    """The health and the lags of the topics and tables of one snapshot.

    Args:
        symptoms: of the snapshot, the worst first.
    """

    def __init__(self, now: Snapshot, symptoms: Sequence[Symptom], catalog: Mapping[str, Entry]) -> None:
        self._now, self._symptoms, self._catalog = now, symptoms, catalog
        self._queries = {query.full_name: query for query in now.queries}
        states: list[TopicState | TableState] = [*now.topics, *now.tables]
        self._states = {state.name: state for state in states}

    def health(self, name: str) -> Health:
        """Returns the health of a topic or table, by its full name; it is unknown if the snapshot does not have it."""
        state = self._states.get(name)
        if state is None:
            return Health("unknown", ("it was declared after the last look",))
        programs = self._now.programs.get(name.partition(".")[0], ())
        subjects = {None, BROKER, *programs, self._query_name(name), name}
        symptoms = [symptom for symptom in self._symptoms if symptom.subject in subjects]
        if symptoms:
            return Health(symptoms[0].severity, tuple(symptom.text.removeprefix(f"{name}: ") for symptom in symptoms))
        if isinstance(state, TableState) and state.version is None:
            return Health("unknown", ("it was not computed yet",))
        return Health("healthy", self._well(state))

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
        return self._queries.get(self._query_name(name))

    def _query_name(self, name: str) -> str:
        is_topic = isinstance(self._states.get(name), TopicState)
        return f"{name.partition('.')[0]}.{INGEST}" if is_topic else name

    def _own_s(self, name: str) -> float | None:
        query, state = self.query(name), self._states.get(name)
        if isinstance(state, TopicState):
            if not state.lag or query is None:
                return None if state.lag is None else 0.0
            return query.idle_s(self._now.at)
        if query is None or query.behind is None:
            return None
        return (query.behind_s or 0.0) if query.behind else 0.0

    def _well(self, state: TopicState | TableState) -> tuple[str, ...]:
        query = self.query(state.name)
        written = (f"written {shown_duration(query.idle_s(self._now.at))} before",) if query else ()
        if isinstance(state, TopicState):
            return (*written, "no record is lost")
        fresh = ("fresh",) if query and query.freshness_s is not None else ()
        return (*written, *fresh, "audited, every row is explained" if state.audit else "no audit yet")
