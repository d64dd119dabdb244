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


@dataclass(frozen=True, kw_only=True)
class Health:
    """A topic or table with the worst severity of its symptoms.

    Attributes:
        state: None: it was declared after the last look.
        query: the one that writes it; None if it never ran.
        why: what is wrong, the worst first; if it is healthy, what was looked at.
    """

    entry: Entry
    state: TopicState | TableState | None
    query: QueryState | None
    lag: Lag
    word: Word
    why: Sequence[str]


def healths_of(now: Snapshot, symptoms: Sequence[Symptom], catalog: Mapping[str, Entry]) -> dict[str, Health]:
    """Returns the health of each topic and table of the catalog, by full name.

    Args:
        symptoms: of the snapshot, the worst first.
    """
    queries = {query.full_name: query for query in now.queries}
    seen: list[TopicState | TableState] = [*now.topics, *now.tables]
    states = {state.name: state for state in seen}
    healths: dict[str, Health] = {}
    for name, entry in catalog.items():  # each after what it reads
        domain = name.partition(".")[0]
        writer = f"{domain}.{INGEST}" if entry.kind == "topic" else name
        state, query = states.get(name), queries.get(writer)
        subjects = {None, BROKER, *now.programs.get(domain, ()), writer, name}
        word, why = _word_and_why(now, state, query, [symptom for symptom in symptoms if symptom.subject in subjects])
        above = {source: healths[source].lag.total_s for source in entry.inputs if source in healths}
        slowest = max(above, key=lambda source: above[source], default=None)
        inherited_s = above[slowest] if slowest else 0.0
        lag = Lag(_own_s(now, state, query), inherited_s, slowest if inherited_s else None)
        why = [text.removeprefix(f"{name}: ") for text in why]
        healths[name] = Health(entry=entry, state=state, query=query, lag=lag, word=word, why=why)
    return healths


def _word_and_why(
    now: Snapshot, state: TopicState | TableState | None, query: QueryState | None, symptoms: Sequence[Symptom]
) -> tuple[Word, list[str]]:
    if state is None:
        return "unknown", ["it was declared after the last look"]
    if symptoms:
        return symptoms[0].severity, [symptom.text for symptom in symptoms]
    if isinstance(state, TableState) and state.version is None:
        return "unknown", ["it was not computed yet"]
    written = [f"written {shown_duration(query.idle_s(now.at))} before"] if query else []
    if isinstance(state, TopicState):
        return "healthy", [*written, "no record is lost"]
    fresh = ["fresh"] if query and query.freshness_s is not None else []
    return "healthy", [*written, *fresh, "audited, every row is explained" if state.audit else "no audit yet"]


def _own_s(now: Snapshot, state: TopicState | TableState | None, query: QueryState | None) -> float | None:
    if isinstance(state, TopicState):
        if not state.lag or query is None:
            return None if state.lag is None else 0.0
        return query.idle_s(now.at)
    if query is None or query.behind is None:
        return None
    return (query.behind_s or 0.0) if query.behind else 0.0
