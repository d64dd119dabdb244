"""Takes snapshots of the platform; a part that does not answer is a problem, not an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import pyarrow as pa

from twofold.batch.ledgers.audit_history import LastAudit
from twofold.infra import COMMAND
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.errors import BrokerUnreachable, TwofoldError
from twofold.infra.instants import epoch_ms, from_epoch_ms
from twofold.infra.kafka.topic_admin import PartitionOffsets, offsets
from twofold.infra.process import supervisor
from twofold.infra.process.supervisor import ProcessState
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import restored
from twofold.status.catalog import catalog_of
from twofold.status.fold import Facts
from twofold.status.health import found_needs, needs_of, stream_health
from twofold.status.parts.captures import capture_states
from twofold.status.parts.outputs import output_reports
from twofold.status.parts.plain_text import plain_text_problems
from twofold.status.parts.series import SeriesPoint, SeriesUpdate
from twofold.status.parts.unloaded_dags import unloaded_dags
from twofold.status.snapshot import PartitionState, QueryState, Snapshot, TableState, TopicState
from twofold.status.store import Store, TableVersion
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

    def snapshot(self, *, with_retention: bool = False, save: bool = True) -> Snapshot:
        """Reads everything; a part that does not answer is left out and named in `problems`.

        Args:
            with_retention: also how much time a failed stream has left, which needs more requests to the broker.
            save: whether to save it in the store, with the catalog; else only this process learns from it.
        """
        settings, registry, lake = self._settings, self._registry, self._lake
        problems = [fault.message for fault in refused(lake, registry).values()]
        progress = _tolerant(problems, "progress", lambda: declared_progress(settings, registry)) or []
        processes = supervisor.state(settings)
        bounds = _tolerant(problems, "broker", lambda: _offsets(settings, registry, processes)) or {}
        # What is saved goes on from what is in the store, so that each commit is in its series once.
        facts = Facts(lake, self._store.table_versions() if save or not self._seen else self._seen)
        audits = facts.audits()
        at, lost = datetime.now(UTC), [gap for gap in gaps(lake) if gap.topic not in registry.elsewhere]
        ingested = {topic: ends for p in progress if p.query == "ingest" for topic, ends in p.offsets.items()}
        kept: Mapping[str, Retention] | None = None
        if with_retention and bounds:
            kept = _tolerant(problems, "retention", lambda: retention(settings, registry.topics, bounds, ingested, at))
        captured = _tolerant(problems, "captures", lambda: capture_states(settings, registry)) if processes else []
        tables = self._tables(problems, facts, audits)
        topics = self._topics(problems, facts, bounds, ingested, kept or {})
        outputs = _tolerant(problems, "outputs", lambda: output_reports(lake, registry, at)) or []
        unloaded = _tolerant(problems, "Airflow", lambda: unloaded_dags(settings, registry, processes))
        problems += [unloaded] if unloaded else []
        problems += _tolerant(problems, "quarantine", lambda: plain_text_problems(lake, registry, at)) or []
        problems += live_unproved(lake, registry).values()
        problems += [
            f"{name}: not all rows are known to be of the accepted code, see `{COMMAND} plan {name.split('.')[0]}`"
            for name in (*registry.topics, *registry.tables)
            if facts.is_of_other_code(name)
        ]
        now = Snapshot(
            at=at,
            processes=processes,
            topics=topics,
            queries=[_query(p, registry, lake, facts) for p in progress],
            tables=tables,
            problems=problems,
            gaps=lost,
            # The tables of a file with a fault are not removed.
            removed=registry.removed(lake.names()),
            captures=captured or [],
            outputs=outputs,
            not_run=registry.not_run,
        )
        updates = _tolerant(problems, "commits", lambda: _series_updates(now, facts)) if save else None
        health = {domain: stream_health(now, domain, settings, registry) for domain in registry.domains}
        now = replace(now, health=health, problems=[*problems, *(need.text for need in found_needs(now))])
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
        return {need.symptom: known.get(need.symptom, now.at) for need in needs_of(now)}

    def _topics(
        self,
        problems: list[str],
        facts: Facts,
        bounds: Mapping[str, Mapping[int, PartitionOffsets]],
        ingested: Mapping[str, Mapping[int, int]],
        kept: Mapping[str, Retention],
    ) -> list[TopicState]:
        topics = self._registry.topics
        reasons = _tolerant(problems, "quarantine", lambda: {n: facts.refused(t) for n, t in topics.items()}) or {}
        certificates = _tolerant(problems, "certificates", facts.certificates) or {}
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

    def _tables(self, problems: list[str], facts: Facts, audits: Mapping[str, LastAudit]) -> list[TableState]:
        registry = self._registry
        late = _tolerant(problems, "late records", lambda: facts.late(registry)) or {}
        corrections = _tolerant(problems, "corrections", facts.corrections) or {}
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
    if settings.supervises_broker and not any(p.name == "broker" and p.pid for p in processes):
        # Asking would only wait for an answer that cannot come.
        raise BrokerUnreachable("The broker does not run.")
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


def _tolerant(problems: list[str], part: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (TwofoldError, pa.ArrowException) as error:  # Arrow's: a file of a Delta table cannot be read
        problems.append(f"{part}: {error.message if isinstance(error, TwofoldError) else error}")
        return None
