"""Takes snapshots of the platform; a part that does not answer is a symptom, not an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pkgutil import resolve_name
from typing import TypeVar

import pyarrow as pa

from twofold.batch.ledgers.audit_history import LastAudit
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.errors import TwofoldError
from twofold.infra.instants import epoch_ms, from_epoch_ms
from twofold.infra.kafka.topic_admin import PartitionOffsets, offsets
from twofold.infra.process import supervisor
from twofold.infra.process.supervisor import ProcessState
from twofold.infra.project.chosen_domains import driver_name
from twofold.infra.project.feature import features
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import restored
from twofold.status.catalog import catalog_of
from twofold.status.fold import Facts
from twofold.status.parts.series import SeriesPoint, SeriesUpdate
from twofold.status.parts.snapshot import (
    BROKER,
    FRESHNESS_S,
    Fault,
    PartitionState,
    QueryState,
    Snapshot,
    TableState,
    TopicState,
)
from twofold.status.parts.unloaded_dags import require_loaded
from twofold.status.store import Store, TableVersion
from twofold.status.symptoms.diagnosis import symptoms_of
from twofold.streaming.ingest.broker_retention import Retention, retention
from twofold.streaming.query.progress import Progress, read
from twofold.streaming.watermarks import by_input, held_back_by
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import live_unproved, refused
from twofold.tables.refresh.events.ingested_offsets import ROWLESS
from twofold.tables.refresh.events.lost_offsets import gaps

T = TypeVar("T")

_MOST_LOOKS = 50


class Observer:
    """Takes snapshots of one platform, each from the state of that moment, and saves what it learned in the store."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings, self._registry = settings, registry
        self._lake, self._store = Lake(settings), Store(settings)
        self._seen: Mapping[str, TableVersion] = {}

    def snapshot(self, *, thorough: bool = False, save: bool = True) -> Snapshot:
        """Reads everything; a part that does not answer is left out and named in `faults`.

        Args:
            thorough: also what takes more requests: how much time a failed stream has left, slots of no topic, and what
                a proxy lets through.
            save: whether to save it in the store, with the catalog; else only this process learns from it.
        """
        settings, registry, lake = self._settings, self._registry, self._lake
        faults: dict[str, Fault] = {}
        progress = _tolerant(faults, "progress", lambda: declared_progress(settings, registry)) or []
        processes = supervisor.state(settings)
        bounds = _tolerant(faults, "broker", lambda: _offsets(settings, registry, processes)) or {}
        # What is saved goes on from what is in the store, so that each commit is in its series once.
        facts = Facts(lake, self._store.table_versions() if save or not self._seen else self._seen)
        audits = facts.audits()
        at, lost = datetime.now(UTC), [gap for gap in gaps(lake) if gap.topic not in registry.elsewhere]
        ingested = {topic: ends for p in progress if p.query == "ingest" for topic, ends in p.offsets.items()}
        kept: Mapping[str, Retention] | None = None
        if thorough and bounds:
            kept = _tolerant(faults, "retention", lambda: retention(settings, registry.topics, bounds, ingested, at))
        _tolerant(faults, "DAGs", lambda: require_loaded(settings, registry, processes))
        if thorough and processes:
            for part, check in (item for feature in features() for item in feature.checks.items()):
                _tolerant(faults, part, partial(resolve_name(check), settings, registry))
        looks = {
            part: partial(resolve_name(look), lake, registry, at) for f in features() for part, look in f.parts.items()
        }
        parts = {part: _tolerant(faults, part, look) for part, look in looks.items()}
        own_broker = [BROKER] if settings.supervises_broker else []
        now = Snapshot(
            at=at,
            processes=processes,
            topics=self._topics(faults, facts, bounds, ingested, kept or {}),
            queries=[_query(p, registry, lake, facts) for p in progress],
            tables=self._tables(faults, facts, audits),
            programs={name: [*own_broker, driver_name(name)] for name in registry.domains},
            gaps=lost,
            # The tables of a file with a fault are not removed.
            removed=registry.removed(lake.names()),
            captures=parts.get("captures") or [],
            outputs=parts.get("outputs") or [],
            refused={name: Fault.from_error(error) for name, error in refused(lake, registry).items()},
            unproved=live_unproved(lake, registry),
            of_other_code=[name for name in (*registry.topics, *registry.tables) if facts.is_of_other_code(name)],
            plain_text=parts.get("plain_text") or {},
            not_run=registry.not_run,
        )
        updates = _tolerant(faults, "commits", lambda: _series_updates(now, facts)) if save else None
        now = replace(now, faults=faults)
        now = replace(now, since=self._since(now))
        if save:
            catalog = catalog_of(registry, facts)
            self._store.save(facts.table_versions, updates=updates, snapshot=now, since=now.since, catalog=catalog)
        self._seen = facts.table_versions
        return now

    def _since(self, now: Snapshot) -> dict[str, datetime]:
        """Returns when each thing that is wrong was seen first, since it was last seen to be right."""
        before = self._store.latest("since")
        known = restored(dict[str, datetime], before.value) if before else {}
        keys = [f"{symptom.kind} {symptom.subject}" for symptom in symptoms_of(now)]
        return {key: known.get(key, now.at) for key in keys}

    def _topics(
        self,
        faults: dict[str, Fault],
        facts: Facts,
        bounds: Mapping[str, Mapping[int, PartitionOffsets]],
        ingested: Mapping[str, Mapping[int, int]],
        kept: Mapping[str, Retention],
    ) -> list[TopicState]:
        topics = self._registry.topics
        reasons = _tolerant(faults, "quarantine", lambda: {n: facts.refused(t) for n, t in topics.items()}) or {}
        certificates = _tolerant(faults, "certificates", facts.certificates) or {}
        states = []
        for name, topic in topics.items():
            known, done, leaves = bounds.get(name, {}), ingested.get(name, {}), kept.get(name)
            left = leaves.leaves_in_s if leaves else {}
            states.append(
                TopicState(
                    name=name,
                    partitions=[_partition(n, known.get(n), done.get(n), left.get(n)) for n in range(topic.partitions)],
                    events=facts.rows(name),
                    quarantined=facts.rows(name + QUARANTINE),
                    archive_bytes=leaves.archive_bytes if leaves else None,
                    refused=reasons.get(name, ()),
                    certificate=certificates.get(name),
                )
            )
        return states

    def _tables(self, faults: dict[str, Fault], facts: Facts, audits: Mapping[str, LastAudit]) -> list[TableState]:
        registry = self._registry
        late = _tolerant(faults, "late records", lambda: facts.late(registry)) or {}
        corrections = _tolerant(faults, "corrections", facts.corrections) or {}
        states = []
        for table in registry.in_order():
            oldest, newest = facts.bounds(table.full_name, table.event_time)
            states.append(
                TableState(
                    name=table.full_name,
                    strategy=registry.strategy(table),
                    rows=facts.rows(table.full_name),
                    late=late.get(table.full_name),
                    corrections=corrections.get(table.full_name, 0),
                    version=facts.version(table.full_name),
                    audit=audits.get(table.full_name),
                    oldest=oldest,
                    newest=newest,
                )
            )
        return states


def _series_updates(now: Snapshot, facts: Facts) -> dict[str, SeriesUpdate]:
    """Returns what is new of topics and tables since the last look."""
    samples = {table.name: SeriesPoint(rows=table.rows) for table in now.tables}
    for topic in now.topics:
        at_ms = epoch_ms(now.at)
        samples[topic.name] = SeriesPoint(produced=topic.produced, ingested=topic.ingested, lag=topic.lag, at_ms=at_ms)
    updates = {name: facts.series_update(name, sample) for name, sample in samples.items()}
    return {name: update for name, update in updates.items() if update}


def declared_progress(settings: Settings, registry: Registry) -> list[Progress]:
    """Returns the progress of ingest and of every table that is still declared, of domains that run."""
    return [
        p
        for p in read(settings)
        if p.domain in registry.domains and (p.query == "ingest" or f"{p.domain}.{p.query}" in registry.tables)
    ]


def _offsets(
    settings: Settings, registry: Registry, processes: Sequence[ProcessState]
) -> dict[str, dict[int, PartitionOffsets]]:
    if settings.supervises_broker and not any(p.name == BROKER and p.pid for p in processes):
        return {}  # asking would only wait for an answer that cannot come
    return offsets(settings, list(registry.topics))


def _partition(
    number: int, bounds: PartitionOffsets | None, ingested_to: int | None, leaves_in_s: float | None
) -> PartitionState:
    if bounds is None:
        return PartitionState(partition=number, earliest=None, latest=None, next=ingested_to, lag=None)
    position = bounds.earliest if ingested_to is None else ingested_to
    return PartitionState(
        partition=number,
        earliest=bounds.earliest,
        latest=bounds.latest,
        next=ingested_to,
        lag=max(bounds.latest - position, 0),
        earliest_local=bounds.earliest_local,
        tiered=bounds.tiered,
        leaves_in_s=leaves_in_s,
    )


def _query(progress: Progress, registry: Registry, lake: Lake, facts: Facts) -> QueryState:
    table = registry.tables.get(f"{progress.domain}.{progress.query}")
    watermarks = {} if table is None else by_input(facts.newest_ms, registry, table)
    behind, behind_s = (None, None) if table is None else _behind(progress, table, registry, lake, facts)
    return QueryState(
        domain=progress.domain,
        query=progress.query,
        batch=progress.batch,
        watermark=progress.watermark,
        inputs={name: None if ms is None else from_epoch_ms(ms) for name, ms in watermarks.items()},
        held_back_by=held_back_by(watermarks),
        rows_in=progress.rows_in,
        rows_out=progress.rows_out,
        batch_s=progress.batch_s,
        freshness_s=progress.freshness_s,
        updated_at=progress.updated_at,
        behind=behind,
        behind_s=behind_s,
        error=progress.error,
        fresh_within_s=table.freshness_ms / 1_000 if table and table.freshness_ms is not None else FRESHNESS_S,
    )


def _behind(progress: Progress, table: Table, registry: Registry, lake: Lake, facts: Facts) -> tuple[int, float | None]:
    """Counts the commits of the inputs that wait, and returns the age of the first one in seconds, if there is one."""
    ends = {declared.full_name: facts.version(declared.full_name) for declared in registry.upstream(table)}
    waits = [_waiting(lake, name, progress.versions.get(name, 0), n) for name, n in ends.items() if n is not None]
    firsts_ms = [first_ms for _, first_ms in waits if first_ms is not None]
    age_s = max(0.0, time.time() - min(firsts_ms) / 1_000) if firsts_ms else None
    return sum(count for count, _ in waits), age_s


def _waiting(lake: Lake, name: str, start: int, newest: int) -> tuple[int, int | None]:
    """Counts commits from a version on that changed rows, and returns the time of the first that was looked at.

    If there are many, the older ones are all counted, since each takes a look.
    """
    end = newest + 1
    looked_from = max(start, end - _MOST_LOOKS)
    try:
        looked_at = list(lake.commits(name, looked_from - 1, newest))
    except FileNotFoundError:  # the log was cleaned up
        return max(end - start, 0), None
    waiting = [c.timestamp_ms for c in looked_at if c.changes and c.info.get("cause") not in ROWLESS]
    return looked_from - start + len(waiting), min(waiting, default=None)


def _tolerant(faults: dict[str, Fault], part: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (TwofoldError, pa.ArrowException) as error:  # Arrow's: a file of a Delta table cannot be read
        faults[part] = Fault.from_error(error)
        return None
