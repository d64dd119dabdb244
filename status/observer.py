"""Takes snapshots of the platform; a part that does not answer is a problem, not an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TypeVar

import pyarrow as pa

from batch.ledgers.audit_history import LastAudit, last_audits
from batch.ledgers.run_ledgers import CORRECTIONS
from infra.delta.datafusion_sql import select
from infra.delta.file_statistics import bounds_of
from infra.delta.lake import Lake
from infra.errors import BrokerUnreachable, TwofoldError
from infra.instants import from_epoch_ms
from infra.kafka.topic_admin import PartitionOffsets, offsets
from infra.process import supervisor
from infra.process.supervisor import ProcessState
from infra.settings import Settings
from status.captures import capture_states
from status.health import stream_health
from status.outputs import output_reports
from status.plain_text import plain_text_problems
from status.snapshot import PartitionState, QueryState, Snapshot, TableState, TopicState
from status.unloaded_dags import unloaded_dags
from streaming.ingest.broker_retention import Retention, retention
from streaming.query.progress import Progress, read
from streaming.watermarks import by_input, held_back_by
from tables.declare.metadata_columns import LATE_BY_MS, OFFSET
from tables.declare.registry import Registry
from tables.declare.table import Table
from tables.declare.topic import Topic
from tables.refresh.acceptance import live_unproved, of_other_code, refused
from tables.refresh.events.ingested_offsets import ROWLESS
from tables.refresh.events.lost_offsets import gaps

T = TypeVar("T")

_MOST_LOOKS = 50


class Observer:
    """Takes snapshots of one platform, each from the state of that moment."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings, self._registry = settings, registry
        self._lake = Lake(settings)

    def snapshot(self, *, with_retention: bool = False) -> Snapshot:
        """Reads everything; a part that does not answer is left out and named in `problems`.

        Args:
            with_retention: also how much time a failed stream has left, which needs more requests to the broker.
        """
        settings, registry, lake = self._settings, self._registry, self._lake
        problems = [fault.message for fault in refused(lake, registry).values()]
        progress = _tolerant(problems, "progress", lambda: declared_progress(settings, registry)) or []
        processes = supervisor.state(settings)
        bounds = _tolerant(problems, "broker", lambda: _offsets(settings, registry, processes)) or {}
        audits = last_audits(lake)
        at, lost = datetime.now(UTC), [gap for gap in gaps(lake) if gap.topic not in registry.elsewhere]
        ingested = {topic: ends for p in progress if p.query == "ingest" for topic, ends in p.offsets.items()}
        kept: Mapping[str, Retention] | None = None
        if with_retention and bounds:
            kept = _tolerant(problems, "retention", lambda: retention(settings, registry.topics, bounds, ingested, at))
        captured = _tolerant(problems, "captures", lambda: capture_states(settings, registry)) if processes else []
        tables = self._tables(problems, audits)
        outputs = _tolerant(problems, "outputs", lambda: output_reports(lake, registry, at)) or []
        problems += [f"{o.table}: the output {o.output} has failed: {o.error}" for o in outputs if o.error]
        unloaded = _tolerant(problems, "Airflow", lambda: unloaded_dags(settings, registry, processes))
        problems += [unloaded] if unloaded else []
        problems += _tolerant(problems, "quarantine", lambda: plain_text_problems(lake, registry, at)) or []
        problems += [f"{capture.topic}: {capture.fault}" for capture in captured or [] if capture.fault]
        problems += [str(gap) for gap in lost if gap.is_open]
        problems += live_unproved(lake, registry).values()
        problems += [
            f"{name}: not all rows are known to be of the accepted code, see `./twofold plan {name.split('.')[0]}`"
            for name in of_other_code(lake, [*registry.topics, *registry.tables])
        ]
        problems += [f"{p.name} is {p.state}" for p in processes if p.state not in ("RUNNING", "STARTING")]
        problems += [f"{p.domain}.{p.query} has failed: {p.error}" for p in progress if p.error]
        problems += [
            f"{name}: audits found {audit.unexplained:,} rows that nothing explains"
            for name, audit in audits.items()
            if audit.unexplained and name not in registry.elsewhere
        ]
        now = Snapshot(
            at=at,
            processes=processes,
            topics=[
                _topic(topic, bounds.get(name, {}), ingested.get(name, {}), (kept or {}).get(name), lake)
                for name, topic in registry.topics.items()
            ],
            queries=[_query(p, registry, lake) for p in progress],
            tables=tables,
            problems=problems,
            gaps=lost,
            # The tables of a file with a fault are not removed.
            removed=registry.removed(lake.names()),
            captures=captured or [],
            outputs=outputs,
            not_run=registry.not_run,
        )
        return replace(
            now, health={domain: stream_health(now, domain, settings, registry) for domain in registry.domains}
        )

    def _tables(self, problems: list[str], audits: Mapping[str, LastAudit]) -> list[TableState]:
        registry, lake = self._registry, self._lake
        late = _tolerant(problems, "late records", lambda: count_late(lake, registry)) or {}
        corrections = _tolerant(problems, "corrections", lambda: count_corrections(lake)) or {}
        states = []
        for table in registry.in_order():
            oldest, newest = time_bounds(lake, table)
            states.append(
                TableState(
                    name=table.full_name,
                    strategy=registry.strategy(table),
                    rows=_if_there(lake, table.full_name, lake.rows),
                    late=late.get(table.full_name),
                    corrections=corrections.get(table.full_name, 0),
                    version=_if_there(lake, table.full_name, lake.version),
                    audit=audits.get(table.full_name),
                    oldest=oldest,
                    newest=newest,
                )
            )
        return states


def time_bounds(lake: Lake, table: Table) -> tuple[date | None, date | None]:
    """Returns the least and the greatest event time of a table's rows; None twice if rows have none."""
    if table.event_time is None or not lake.exists(table.full_name):
        return None, None
    return bounds_of(lake.open(table.full_name), table.event_time)


def count_late(lake: Lake, registry: Registry) -> dict[str, int]:
    """Counts per table the records of its topics that were later than its watermark; only of tables whose rows close.

    An upper bound of what their streams dropped: each of them also waited for its slowest input.
    """
    late = {}
    for table in registry.in_order():
        if table.closes_at:
            names = [declared.full_name for declared in registry.upstream(table) if isinstance(declared, Topic)]
            condition = f"{OFFSET} IS NOT NULL AND {LATE_BY_MS} >= {table.watermark_ms}"
            rows = (select(lake.open(name), [LATE_BY_MS], condition) for name in names if lake.exists(name))
            late[table.full_name] = sum(map(len, rows))
    return late


def count_corrections(lake: Lake) -> dict[str, int]:
    """Counts per table the rows that were corrected so far, from the ledger."""
    if not lake.exists(CORRECTIONS):
        return {}
    counts = select(lake.open(CORRECTIONS), ["table"])["table"].value_counts()
    return {entry["values"]: entry["counts"] for entry in counts.to_pylist()}


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


def _topic(
    topic: Topic,
    bounds: Mapping[int, PartitionOffsets],
    ingested_to: Mapping[int, int],
    kept: Retention | None,
    lake: Lake,
) -> TopicState:
    leaves = kept.leaves_in_s if kept else {}
    return TopicState(
        name=topic.full_name,
        partitions=[_partition(n, bounds.get(n), ingested_to.get(n), leaves.get(n)) for n in range(topic.partitions)],
        events=_if_there(lake, topic.full_name, lake.rows),
        quarantined=_if_there(lake, f"{topic.full_name}_quarantine", lake.rows),
        archive_bytes=kept.archive_bytes if kept else None,
    )


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


def _query(progress: Progress, registry: Registry, lake: Lake) -> QueryState:
    table = registry.tables.get(f"{progress.domain}.{progress.query}")
    watermarks = {} if table is None else by_input(lake, registry, table)
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
        behind=None if progress.query == "ingest" else _behind(progress, registry, lake),
        error=progress.error,
    )


def _behind(progress: Progress, registry: Registry, lake: Lake) -> int | None:
    table = registry.tables.get(f"{progress.domain}.{progress.query}")
    if table is None:
        return None
    sources = [declared.full_name for declared in registry.upstream(table) if lake.exists(declared.full_name)]
    return sum(_waiting(lake, name, progress.versions.get(name, 0)) for name in sources)


def _waiting(lake: Lake, name: str, start: int) -> int:
    """Commits from a version on that changed rows; of many the older ones are all counted, since each takes a look."""
    end = lake.version(name) + 1
    looked_from = max(start, end - _MOST_LOOKS)
    try:
        looked_at = list(lake.commits(name, looked_from - 1, end - 1))
    except FileNotFoundError:  # the log was cleaned up
        return max(end - start, 0)
    return looked_from - start + sum(commit.changes and commit.info.get("cause") not in ROWLESS for commit in looked_at)


def _tolerant(problems: list[str], part: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (TwofoldError, pa.ArrowException) as error:  # Arrow's: a file of a Delta table cannot be read
        problems.append(f"{part}: {error.message if isinstance(error, TwofoldError) else error}")
        return None


def _if_there(lake: Lake, name: str, read: Callable[[str], T]) -> T | None:
    return read(name) if lake.exists(name) else None
