"""Facts of Delta tables: each is a function of a version, so it is read once a version, and late records once ever."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from twofold.batch.audit.topic_certificates import CERTIFICATES, CertifiedTopic, newest_certificates
from twofold.batch.ledgers.audit_history import LastAudit, last_audits
from twofold.batch.ledgers.run_ledgers import CORRECTIONS
from twofold.batch.ledgers.run_result import RUNS
from twofold.infra.delta.change_feed import changed_rows, is_old
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.file_statistics import bounds_of
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.infra.errors import ChangesGone, ChangesUnread
from twofold.infra.text.printable import plain, restored
from twofold.status.parts.refused_records import COLUMNS, Refused, refused_in
from twofold.status.parts.series import SeriesPoint, SeriesUpdate, oldest_folded, point_of
from twofold.status.store import TableVersion
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import accepted_code
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.events.lateness import lateness_counts

if TYPE_CHECKING:
    from deltalake import DeltaTable

_RESTORE = "RESTORE"


class Facts:
    """Facts of the tables of a lake, of each at one version: the newest when it is first asked for.

    Args:
        known: what an earlier one found out.
    """

    def __init__(self, lake: Lake, known: Mapping[str, TableVersion] | None = None) -> None:
        self._lake, self._known = lake, known or {}
        self._table_versions: dict[str, TableVersion | None] = {}
        self._opened: dict[str, DeltaTable] = {}

    @property
    def table_versions(self) -> dict[str, TableVersion]:
        """All that is known by now of tables that were asked for."""
        return {name: newest for name, newest in self._table_versions.items() if newest}

    def version(self, name: str) -> int | None:
        """Returns the version of a table, None if it does not exist."""
        newest = self._table_version(name)
        return newest.version if newest else None

    def rows(self, name: str) -> int | None:
        """Counts the rows of a table by the statistics of its files; None if it does not exist."""
        return self._fact(name, "rows", lambda table: int(table.count()))  # type: ignore[no-any-return]

    def bounds(self, name: str, column: str | None) -> tuple[Any, Any]:
        """Returns the least and the greatest value of a column of times; None twice if it has none."""
        if column is None:
            return None, None
        texts = self._fact(name, f"bounds {column}", lambda table: [plain(at) for at in bounds_of(table, column)])
        least, greatest = map(_moment, texts or (None, None))
        return least, greatest

    def types(self, name: str) -> dict[str, str]:
        """Returns the type of each column, in their order; empty if the table does not exist."""

        def read(table: DeltaTable) -> list[tuple[str, str]]:
            return [(field.name, getattr(field.type, "type", str(field.type))) for field in table.schema().fields]

        return dict(self._fact(name, "types", read) or ())

    def is_of_other_code(self, name: str) -> bool:
        """Whether some rows are not known to be of the table's accepted code."""

        def is_other(table: DeltaTable) -> bool:
            fact = accepted_code(self._lake, name, table)
            return fact is not None and not fact.is_whole

        return bool(self._fact(name, "other code", is_other))

    def newest_ms(self, topic: Topic) -> int | None:
        """Returns the greatest event time that ingest committed, epoch milliseconds; None if there is none."""

        def newest(table: DeltaTable) -> int | None:
            return read_ingested_offsets(self._lake, topic, at=table).newest_ms

        return self._fact(topic.full_name, "newest_ms", newest)  # type: ignore[no-any-return]

    def audits(self) -> dict[str, LastAudit]:
        """Returns the last audit by table; a table that was never audited is left out."""
        audits = self._fact(
            RUNS,
            "audits",
            lambda table: plain({name: asdict(audit) for name, audit in last_audits(self._lake, table).items()}),
        )
        times = ("at", "all_since")
        return {
            name: LastAudit(**{**row, **{at: _moment(row[at]) for at in times}}) for name, row in (audits or {}).items()
        }

    def certificates(self) -> dict[str, CertifiedTopic]:
        """Returns the newest certificate by topic; a topic without one is left out."""
        certificates = self._fact(
            CERTIFICATES,
            "certificates",
            lambda table: plain({name: asdict(last) for name, last in newest_certificates(table).items()}),
        )
        return restored(dict[str, CertifiedTopic], certificates or {})  # type: ignore[no-any-return]

    def corrections(self) -> dict[str, int]:
        """Counts per table the rows that batch work corrected, in all."""

        def counts(table: DeltaTable) -> dict[str, int]:
            counts = select(table, ["table"])["table"].value_counts().to_pylist()
            return {entry["values"]: entry["counts"] for entry in counts}

        return self._fact(CORRECTIONS, "corrections", counts) or {}

    def late(self, registry: Registry) -> dict[str, int]:
        """Counts per table the records of its topics that were later than its watermark; only if its rows close.

        An upper bound of what their streams dropped: each of them also waited for its slowest input.
        """
        tables = {
            table.full_name: (table.watermark_ms, [topic.full_name for topic in registry.topics_of(table)])
            for table in registry.in_order()
            if table.closes_at
        }
        delays: dict[str, set[int]] = {}
        for delay_ms, topics in tables.values():
            for topic in topics:
                delays.setdefault(topic, set()).add(delay_ms)
        counts = {topic: self._late_counts(topic, wanted) for topic, wanted in delays.items()}
        return {name: sum(counts[topic][delay] for topic in topics) for name, (delay, topics) in tables.items()}

    def refused(self, topic: Topic) -> list[Refused]:
        """Returns what is wrong with the quarantined records of a topic, the most frequent first.

        New records are counted when they come; if some have left, all are counted again.
        """
        name, rules = topic.full_name + QUARANTINE, [str(rule) for rule in topic.checks]
        newest = self._table_version(name)
        if newest is None:
            return []
        if newest.facts.get("refused", {}).get("rules") != rules:
            before = self._known.get(name)
            fact = before.facts.get("refused", {}) if before else {}
            earlier = {refused["reason"]: Refused(**refused) for refused in fact.get("by", ())}
            rows = self._added_since(name, before, COLUMNS) if before and fact.get("rules") == rules else None
            if rows is None:
                rows, earlier = select(self._open(name), COLUMNS), {}
            newer = refused_in(rows, rules)
            counted = {**earlier, **{reason: refused.after(earlier.get(reason)) for reason, refused in newer.items()}}
            by = sorted(counted.values(), key=lambda refused: (-refused.records, refused.reason))
            newest.facts["refused"] = {"rules": rules, "by": [asdict(refused) for refused in by]}
        return [Refused(**refused) for refused in newest.facts["refused"]["by"]]

    def series_update(self, name: str, sample: SeriesPoint) -> SeriesUpdate | None:
        """Returns what the new commits of a table say, with what is true of it now; None if it does not exist."""
        newest, before = self._table_version(name), self._known.get(name)
        if newest is None:
            return None
        after = before.version if before else None
        commits = self._lake.commits(name, oldest_folded(after, newest.version), newest.version, kept=True)
        points = ((commit.timestamp_ms, self._point(name, commit, is_new=before is not None)) for commit in commits)
        return SeriesUpdate(after=after, commits=[(at, point) for at, point in points if point], sample=sample)

    def _point(self, name: str, commit: LoggedCommit, *, is_new: bool) -> SeriesPoint | None:
        """Returns what a commit says; how late its records were is read, if it does not say it and is new."""
        point = point_of(commit)
        if not is_new or point is None or not point.lacks_lateness:
            return point
        with suppress(ChangesGone, ChangesUnread):
            columns = [OFFSET, LATE_BY_MS]
            rows = changed_rows(self._lake, name, commit.version - 1, commit.version, columns, self._open(name))
            late = rows.filter(pc.is_valid(rows[OFFSET]))[LATE_BY_MS]
            return SeriesPoint(lateness={str(bound): n for bound, n in lateness_counts(late).items()})
        return None

    def _late_counts(self, name: str, delays_ms: Collection[int]) -> dict[int, int]:
        """Counts a topic's records that are late by each of these delays or more; only new commits are read."""
        newest = self._table_version(name)
        if newest is None:
            return dict.fromkeys(delays_ms, 0)
        counts = {int(delay): n for delay, n in newest.facts.get("late", {}).items()}
        before = self._known.get(name)
        since = {int(delay): n for delay, n in before.facts.get("late", {}).items()} if before else {}
        if not set(delays_ms) <= set(counts):
            added = self._late_since(name, before, min(delays_ms)) if before and set(delays_ms) <= set(since) else None
            if added is None:
                condition = f"{OFFSET} IS NOT NULL AND {LATE_BY_MS} >= {min(delays_ms)}"
                rows = select(self._open(name), [LATE_BY_MS], condition)
                since, added = dict.fromkeys(delays_ms, 0), [(late_ms, 1) for late_ms in rows[LATE_BY_MS].to_pylist()]
            counts = {delay: since[delay] + sum(n for late_ms, n in added if late_ms >= delay) for delay in delays_ms}
            newest.facts["late"] = {str(delay): n for delay, n in counts.items()}
        return counts

    def _late_since(self, name: str, before: TableVersion, least_ms: int) -> list[tuple[int, int]] | None:
        """Returns the lateness of records that came, 1, or went, -1, after a version; None if that cannot be known."""
        commits = self._commits_since(name, before)
        if commits is None:
            return None
        greatest = [file.greatest.get(LATE_BY_MS) for commit in commits for file in commit.added]
        if not any(c.rewrites for c in commits) and all(isinstance(ms, int) and ms < least_ms for ms in greatest):
            return []
        rows = self._changes_since(name, before, [OFFSET, LATE_BY_MS])
        if rows is None:
            return None
        is_late = pc.and_(pc.is_valid(rows[OFFSET]), pc.greater_equal(rows[LATE_BY_MS], least_ms))
        return [(row[LATE_BY_MS], -1 if is_old(row) else 1) for row in rows.filter(is_late).to_pylist()]

    def _added_since(self, name: str, before: TableVersion, columns: Sequence[str]) -> pa.Table | None:
        """Returns the rows that came after a version; None if some went, or that cannot be known."""
        commits = self._commits_since(name, before)
        if commits is None or any(commit.rewrites for commit in commits):
            return None
        return self._changes_since(name, before, columns)

    def _commits_since(self, name: str, before: TableVersion) -> list[LoggedCommit] | None:
        """Returns the commits after a version that changed rows; None if that version is none of this history."""
        newest = self._table_versions[name]
        if newest is None or self._lake.commit_digest(name, before.version) != before.digest:
            return None
        with suppress(FileNotFoundError):
            commits = [c for c in self._lake.commits(name, before.version, newest.version) if c.changes]
            return None if any(commit.operation == _RESTORE for commit in commits) else commits
        return None

    def _changes_since(self, name: str, before: TableVersion, columns: Sequence[str]) -> pa.Table | None:
        with suppress(ChangesGone, ChangesUnread):
            table = self._open(name)
            return changed_rows(self._lake, name, before.version, table.version(), columns, table)
        return None

    def _fact(self, name: str, fact: str, read: Callable[[DeltaTable], object]) -> Any:
        newest = self._table_version(name)
        if newest is None:
            return None
        if fact not in newest.facts:
            newest.facts[fact] = read(self._open(name))
        return newest.facts[fact]

    def _table_version(self, name: str) -> TableVersion | None:
        if name not in self._table_versions:
            self._table_versions[name] = self._current(name) if self._lake.exists(name) else None
        return self._table_versions[name]

    def _current(self, name: str) -> TableVersion:
        """Returns the table's version as it was known, if the table has not moved, else the newest without facts."""
        version, known = self._lake.version(name), self._known.get(name)
        digest = self._lake.commit_digest(name, version)
        if known and digest and (known.version, known.digest) == (version, digest):
            return TableVersion(version, digest, dict(known.facts))
        return TableVersion(version, digest)

    def _open(self, name: str) -> DeltaTable:
        newest = self._table_versions[name]
        if name not in self._opened:
            self._opened[name] = self._lake.open(name, newest.version if newest else None)
        return self._opened[name]


def _moment(text: str | None) -> datetime | date | None:
    """Reads a date or a time back."""
    if text is None:
        return None
    return date.fromisoformat(text) if len(text) == len("2013-01-01") else datetime.fromisoformat(text)
