"""State of the platform at one moment, as `twofold status --json` prints it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

from twofold.batch.audit.topic_certificates import CertifiedTopic
from twofold.batch.ledgers.audit_history import LastAudit
from twofold.infra.errors import TwofoldError
from twofold.infra.process.supervisor import ProcessState
from twofold.status.parts.refused_records import Refused
from twofold.tables.refresh.events.lost_offsets import Gap

BROKER, INGEST = "broker", "ingest"
"""The supervisor's name of the broker; the query that writes the events of a domain's topics."""
FRESHNESS_S = 900.0
"""Rows become visible this long after the broker had them; tables may declare another limit."""


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
        refused: what is wrong with its quarantined records, the most frequent first.
        certificate: the newest of an audit that compared all of it with the log; None if there is none.
    """

    name: str
    partitions: Sequence[PartitionState]
    events: int | None
    quarantined: int | None
    archive_bytes: int | None = None
    refused: Sequence[Refused] = ()
    certificate: CertifiedTopic | None = None

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
        behind_s: seconds since the first of them; None as `behind`, and if none waits.
        error: why it has failed; empty while it runs.
        fresh_within_s: its rows are to be visible so long after the broker had them.
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
    behind_s: float | None = None
    fresh_within_s: float = FRESHNESS_S

    @property
    def full_name(self) -> str:
        """The domain and the query, which is also the full name of the table that it writes, if it writes one."""
        return f"{self.domain}.{self.query}"

    def idle_s(self, at: datetime) -> float:
        """Returns the seconds from the last micro-batch to a moment."""
        return (at - self.updated_at).total_seconds()


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
    oldest: datetime | date | None = None
    newest: datetime | date | None = None


@dataclass(frozen=True, kw_only=True)
class CaptureState:
    """A captured table of the database.

    Attributes:
        state: of the connector's task as reported by Connect, or `MISSING`.
        slot: the slot's `wal_status` in `pg_replication_slots`: `reserved`, `extended`, `unreserved`, `lost`; None: no
            slot.
        retained_bytes: of write-ahead log that the database keeps for the connector.
        fault: what is wrong; empty when nothing is.
        hint: what to do about it.
        waiting: records in the intake that are not in the topic yet; None: it has no intake.
    """

    topic: str
    table: str
    state: str
    slot: str | None
    retained_bytes: int
    fault: str = ""
    hint: str = ""
    waiting: int | None = None


@dataclass(frozen=True, kw_only=True)
class OutputReport:
    """An output.

    Attributes:
        kind: what holds its copy.
        state: in a few words.
        version: of the table, that the copy shows; None: it is not known, or nothing was sent yet.
        behind: versions of the table that the copy does not show; None as `version`.
        behind_s: seconds since the first of them; None: it shows all, or that is not known.
        waiting: changes that its receiver does not have yet.
        refused: rows that it could not have, in all.
        error: why it does not go on; empty while it does.
        has_failed: it is no change that is tried again for the first minutes.
    """

    table: str
    output: str
    kind: str
    state: str
    version: int | None
    behind: int | None
    behind_s: float | None
    waiting: int
    refused: int
    error: str
    has_failed: bool = False


@dataclass(frozen=True)
class Fault:
    """Why something cannot be used, and what helps against just that; empty: what helps against all of its kind."""

    message: str
    hint: str = ""

    @classmethod
    def from_error(cls, error: Exception) -> Fault:
        """Makes one of an error."""
        return cls(error.message, error.hint or "") if isinstance(error, TwofoldError) else cls(str(error))


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The whole platform: facts, of which `symptoms_of` says what is wrong.

    Attributes:
        programs: domain -> what its stream needs of the supervisor: the broker, if it is ours, and its driver.
        faults: part of the platform -> what is wrong with it; if it could not be read, what it would say is left out.
        gaps: records that are lost, as the ledger of gaps names them.
        removed: Delta tables that no file declares any more.
        captures: captured tables of the database; those that could not be looked at are left out.
        outputs: copies of tables that follow them.
        refused: declaration -> why it is left out.
        unproved: table that goes on, though a new one like it is refused -> what it lacks.
        of_other_code: topics and tables with rows that are not known to be of the accepted code.
        plain_text: topic -> its newest records with values of persons in the clear.
        not_run: domains that are declared and not chosen; nothing else here is of them.
        since: kind and subject of a symptom -> when it was seen first, since it was last seen to be right.
    """

    at: datetime
    processes: Sequence[ProcessState]
    topics: Sequence[TopicState]
    queries: Sequence[QueryState]
    tables: Sequence[TableState]
    programs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    faults: Mapping[str, Fault] = field(default_factory=dict)
    gaps: Sequence[Gap] = ()
    removed: Sequence[str] = ()
    captures: Sequence[CaptureState] = ()
    outputs: Sequence[OutputReport] = ()
    refused: Mapping[str, Fault] = field(default_factory=dict)
    unproved: Mapping[str, str] = field(default_factory=dict)
    of_other_code: Sequence[str] = ()
    plain_text: Mapping[str, str] = field(default_factory=dict)
    not_run: Sequence[str] = ()
    since: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def open_gaps(self) -> list[Gap]:
        """The gaps that are not acknowledged."""
        return [gap for gap in self.gaps if gap.is_open]


def _sum(values: Iterable[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
