"""State of the platform at one moment; a part that does not answer is a problem, not an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, TypeVar

from cli.captures import capture_states
from dags.unloaded_dags import unloaded_dags
from infra.errors import BrokerUnreachable, TwofoldError
from infra.settings import Settings
from streaming.ingest.broker_retention import Retention, retention
from tables.refresh.events.ingested_offsets import ROWLESS

if TYPE_CHECKING:
    from batch.ledgers.audit_history import LastAudit
    from cli.sql_query import Analyst
    from infra.capture.debezium_connector import CaptureState
    from infra.delta.lake import Lake
    from infra.kafka.topic_admin import PartitionOffsets
    from infra.process.doctor import Finding
    from infra.process.supervisor import ProcessState
    from streaming.query.progress import Progress
    from tables.declare.registry import Registry
    from tables.declare.table import Table
    from tables.declare.topic import Topic
    from tables.refresh.events.lost_offsets import Gap

T = TypeVar("T")

_MOST_LOOKS = 50


@dataclass(frozen=True, kw_only=True)
class PartitionState:
    """A partition of a topic.

    Attributes:
        earliest, latest: its half-open bounds on the broker; None while the broker does not answer.
        next: the offset that ingest takes next; None before its first micro-batch.
        lag: records that are not ingested yet.
        earliest_local: the first offset that the broker holds; earlier ones are in the archive alone.
        tiered: the offset after the last one that the archive has; None when it has none.
        leaves_in_s: seconds until the oldest record that is not ingested yet is in the archive alone, 0 once it is;
            None when nothing waits, the topic has no archive, or that was not asked for.
    """

    partition: int
    earliest: int | None
    latest: int | None
    next: int | None
    lag: int | None
    earliest_local: int | None = None
    tiered: int | None = None
    leaves_in_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class TopicState:
    """A topic with what became of its records.

    Attributes:
        archive_bytes: of its archived segments; None when that was not requested, or the broker did not answer.
    """

    name: str
    partitions: Sequence[PartitionState]
    events: int | None
    quarantined: int | None
    archive_bytes: int | None = None

    @property
    def produced(self) -> int | None:
        return _sum(p.latest for p in self.partitions)

    @property
    def ingested(self) -> int | None:
        return _sum(p.next for p in self.partitions)

    @property
    def lag(self) -> int | None:
        return _sum(p.lag for p in self.partitions)


@dataclass(frozen=True, kw_only=True)
class QueryState:
    """A streaming query.

    Attributes:
        watermark: rows that close before it are closed; None where nothing closes.
        inputs: how far each input alone would let it go: its newest event time less the table's delay; None before the
            first event of an input, and none where nothing closes.
        held_back_by: the input that lets it go least far.
        behind: commits of its inputs with changed rows that it has not taken yet; None for ingest, whose lag is its
            topics'.
        error: why it has failed; empty while it runs.
    """

    domain: str
    query: str
    batch: int
    watermark: datetime | None
    inputs: Mapping[str, datetime | None]
    held_back_by: str | None
    rows_in: int
    rows_out: int
    batch_s: float
    freshness_s: float | None
    updated_at: datetime
    behind: int | None
    error: str


@dataclass(frozen=True, kw_only=True)
class TableState:
    """A live table.

    Attributes:
        late: input records later than its watermark: what the stream dropped is among them; None where no row closes.
        corrections: rows that batch work corrected, in all.
        audit: the newest; None when there was none.
        oldest, newest: the bounds of its rows' event times; None where rows have none.
    """

    name: str
    strategy: str
    rows: int | None
    late: int | None
    corrections: int | None
    version: int | None
    audit: LastAudit | None = None
    oldest: date | None = None
    newest: date | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The whole platform.

    Attributes:
        problems: what could not be read, or does not run; empty when all is well.
        gaps: records that are lost, as the ledger of gaps names them.
        removed: Delta tables that no file declares any more.
        captures: captured tables of the database; those that could not be looked at are left out.
        not_run: domains that are declared and not chosen; nothing else here is of them.
    """

    at: datetime
    processes: Sequence[ProcessState]
    topics: Sequence[TopicState]
    queries: Sequence[QueryState]
    tables: Sequence[TableState]
    problems: Sequence[str]
    gaps: Sequence[Gap] = ()
    removed: Sequence[str] = ()
    captures: Sequence[CaptureState] = ()
    not_run: Sequence[str] = ()

    @property
    def open_gaps(self) -> list[Gap]:
        """Those that are not acknowledged."""
        return [gap for gap in self.gaps if gap.is_open]


class Observer:
    """Takes snapshots of one platform, each from the state of that moment."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        from infra.delta.lake import Lake

        self._settings, self._registry = settings, registry
        self._lake = Lake(settings)
        self._analyst: Analyst | None = None

    def take(self, *, with_retention: bool = False) -> Snapshot:
        """Read everything; whatever does not answer is left out and named in `problems`.

        Args:
            with_retention: also how much time a failed stream has left, which needs more requests to the broker.
        """
        from batch.ledgers.audit_history import last_audits
        from infra.process import supervisor
        from tables.refresh.acceptance import live_unproved, of_other_code, refused
        from tables.refresh.events.lost_offsets import gaps

        settings, registry, lake = self._settings, self._registry, self._lake
        problems = [fault.message for fault in refused(lake, registry).values()]
        progress = _tolerant(problems, "progress", lambda: _progress(settings, registry)) or []
        processes = supervisor.state(settings)
        offsets = _tolerant(problems, "broker", lambda: _offsets(settings, registry, processes)) or {}
        audits = last_audits(lake)
        now, lost = datetime.now(UTC), [gap for gap in gaps(lake) if gap.topic not in registry.elsewhere]
        ingested = {topic: taken for p in progress if p.query == "ingest" for topic, taken in p.offsets.items()}
        kept: Mapping[str, Retention] | None = None
        if with_retention and offsets:
            kept = _tolerant(
                problems, "retention", lambda: retention(settings, registry.topics, offsets, ingested, now)
            )
        captured = _tolerant(problems, "captures", lambda: capture_states(settings, registry)) if processes else []
        tables = self._tables(problems, audits)
        unloaded = _tolerant(problems, "Airflow", lambda: unloaded_dags(settings, registry, processes))
        problems += [unloaded] if unloaded else []
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
        return Snapshot(
            at=now,
            processes=processes,
            topics=[
                _topic(topic, offsets.get(name, {}), ingested.get(name, {}), (kept or {}).get(name), lake)
                for name, topic in registry.topics.items()
            ],
            queries=[_query(p, registry, lake) for p in progress],
            tables=tables,
            problems=problems,
            gaps=lost,
            # The tables of a file with a fault are not removed.
            removed=registry.removed(lake.names()),
            captures=captured or [],
            not_run=registry.not_run,
        )

    def _tables(self, problems: list[str], audits: Mapping[str, LastAudit]) -> list[TableState]:
        registry, lake = self._registry, self._lake
        late = _tolerant(problems, "late records", lambda: count_late(self._asking(), lake, registry)) or {}
        corrections = _tolerant(problems, "corrections", lambda: count_corrections(self._asking(), lake)) or {}
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

    def _asking(self) -> Analyst:
        from cli.sql_query import Analyst

        if self._analyst is None:
            self._analyst = Analyst(self._lake, only=[])
        return self._analyst


def declarations(lake: Lake, registry: Registry) -> Finding:
    """The doctor's findings about the files under tables/."""
    from infra.process.doctor import Finding
    from tables.refresh.acceptance import live_unproved, refused

    faults = refused(lake, registry).values()
    return Finding(
        name="Declarations",
        ok=not faults,
        found="; ".join([*(f.message for f in faults), *live_unproved(lake, registry).values()]) or "without a fault",
        expected="files that can be loaded",
        hint=next((fault.hint for fault in faults if fault.hint), "Correct the file, then `./twofold up`."),
    )


def streams(settings: Settings, registry: Registry) -> Finding:
    """The doctor's findings about the queries of all drivers."""
    from infra.process.doctor import Finding

    failed = [f"{p.domain}.{p.query}: {p.error}" for p in _progress(settings, registry) if p.error]
    return Finding(
        name="Streams",
        ok=not failed,
        found="; ".join(failed) or "none has failed",
        expected="none has failed",
        hint="Each is started again automatically once a minute; `./twofold up` loads a corrected file.",
    )


def time_bounds(lake: Lake, table: Table) -> tuple[date | None, date | None]:
    """The least and the greatest event time of a table's rows; None twice where rows have none."""
    from infra.delta.file_statistics import bounds_of

    if table.event_time is None or not lake.exists(table.full_name):
        return None, None
    return bounds_of(lake.open(table.full_name), table.event_time)


def count_late(analyst: Analyst, lake: Lake, registry: Registry) -> dict[str, int]:
    """Table -> records of its topics that were later than its watermark; only tables whose rows close.

    An upper bound of what their streams dropped: each of them also waited for its slowest input.
    """
    from tables.declare.topic import Topic

    found = {}
    for table in registry.in_order():
        if table.closes_at:
            names = [declared.full_name for declared in registry.upstream(table) if isinstance(declared, Topic)]
            topics = [name for name in names if lake.exists(name)]
            analyst.add(topics)
            counts = (_count(analyst, f"FROM {name} WHERE _late_by_ms >= {table.watermark_ms}") for name in topics)
            found[table.full_name] = sum(counts)
    return found


def count_corrections(analyst: Analyst, lake: Lake) -> dict[str, int]:
    """Table -> rows corrected so far, from the ledger."""
    ledger = "ledger.corrections"
    if not lake.exists(ledger):
        return {}
    analyst.add([ledger])
    rows = analyst.rows(f'SELECT "table", count(*) FROM {ledger} GROUP BY ALL')
    return {str(name): int(str(count)) for name, count in rows}


def _progress(settings: Settings, registry: Registry) -> list[Progress]:
    """The progress of ingest and of every table that is still declared, of domains that run."""
    from streaming.query.progress import read

    return [
        p
        for p in read(settings)
        if p.domain in registry.domains and (p.query == "ingest" or f"{p.domain}.{p.query}" in registry.tables)
    ]


def _offsets(
    settings: Settings, registry: Registry, processes: Sequence[ProcessState]
) -> dict[str, dict[int, PartitionOffsets]]:
    from infra.kafka.topic_admin import offsets

    if settings.supervises_broker and not any(p.name == "broker" and p.pid for p in processes):
        # Asking would only wait for an answer that cannot come.
        raise BrokerUnreachable("The broker does not run.")
    return offsets(settings, list(registry.topics))


def _topic(
    topic: Topic,
    bounds: Mapping[int, PartitionOffsets],
    taken: Mapping[int, int],
    kept: Retention | None,
    lake: Lake,
) -> TopicState:
    leaves = kept.leaves_in_s if kept else {}
    return TopicState(
        name=topic.full_name,
        partitions=[_partition(n, bounds.get(n), taken.get(n), leaves.get(n)) for n in range(topic.partitions)],
        events=_if_there(lake, topic.full_name, lake.rows),
        quarantined=_if_there(lake, f"{topic.full_name}_quarantine", lake.rows),
        archive_bytes=kept.archive_bytes if kept else None,
    )


def _partition(
    number: int, bounds: PartitionOffsets | None, taken: int | None, leaves_in_s: float | None
) -> PartitionState:
    if bounds is None:
        return PartitionState(partition=number, earliest=None, latest=None, next=taken, lag=None)
    position = bounds.earliest if taken is None else taken
    return PartitionState(
        partition=number,
        earliest=bounds.earliest,
        latest=bounds.latest,
        next=taken,
        lag=max(bounds.latest - position, 0),
        earliest_local=bounds.earliest_local,
        tiered=bounds.tiered,
        leaves_in_s=leaves_in_s,
    )


def _query(progress: Progress, registry: Registry, lake: Lake) -> QueryState:
    from infra.instants import from_epoch_ms
    from streaming.watermarks import by_input, held_back_by

    table = registry.tables.get(f"{progress.domain}.{progress.query}")
    marks = {} if table is None else by_input(lake, registry, table)
    return QueryState(
        domain=progress.domain,
        query=progress.query,
        batch=progress.batch,
        watermark=progress.watermark,
        inputs={name: None if ms is None else from_epoch_ms(ms) for name, ms in marks.items()},
        held_back_by=held_back_by(marks),
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
    except TwofoldError as error:
        problems.append(f"{part}: {error.message}")
        return None


def _if_there(lake: Lake, name: str, read: Callable[[str], T]) -> T | None:
    return read(name) if lake.exists(name) else None


def _count(analyst: Analyst, query: str) -> int:
    return int(str(analyst.rows(f"SELECT count(*) {query}")[0][0]))


def _sum(values: Iterable[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
