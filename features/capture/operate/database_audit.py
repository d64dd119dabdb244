"""Compares the rows that follow from a captured table's changes with the database's own, as of one snapshot of it.

No lock is taken. A transaction of the database reports which other transactions it sees; only their changes are
compared. The transaction writes a mark to the log; once the mark is among the events, all earlier changes are, too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.batch.audit.comparison import Comparison
from twofold.batch.audit.hash_buckets import Turn
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.features.capture.captured_table import Capture, again
from twofold.features.capture.captured_topic import captures
from twofold.features.capture.catalog_changes import SIZE
from twofold.features.capture.debezium_decoder import EPOCH
from twofold.features.capture.log_marks import WRITE_MARK
from twofold.features.capture.snapshot_deletions import PLACE
from twofold.features.capture.table_catalog import CatalogColumn, columns_of
from twofold.infra import COMMAND
from twofold.infra.duckdb_session import query
from twofold.infra.errors import CaptureFailed, TwofoldError
from twofold.infra.postgres.database_connection import connected
from twofold.infra.rows.sizes import COMMITTED, most_rows
from twofold.tables.declare.table import Table
from twofold.tables.refresh.open_platform import Platform
from twofold_algebra.sql.names import DUCKDB, POSTGRES

if TYPE_CHECKING:
    from psycopg.rows import TupleRow

    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.topic import Topic

BUCKETS = 4096
EXAMPLES = 5
ARRIVAL_S = 180.0
_TIMEOUT_S = 3600.0
_WHOLE = ("smallint", "integer", "bigint")
_FINITE = "CASE WHEN isfinite({{0}}) THEN ({0})::text ELSE {{0}}::text END"
_MICROS = _FINITE.format("(extract(epoch FROM {0}) * 1000000)::bigint")
_TRIMMED = "CASE WHEN contains({0}::VARCHAR, '.') THEN rtrim(rtrim({0}::VARCHAR, '0'), '.') ELSE {0}::VARCHAR END"
_ELEMENT = "coalesce(length(e::{0}) || ':' || e::{0}, 'n')"
_WRITTEN: dict[str, tuple[Sequence[str], str, str]] = {
    "string": (
        ("text", "character varying", "character", "citext", "name", "uuid", "numeric"),
        "CASE WHEN {0} IS NOT NULL THEN concat({0}) END",
        "{0}",
    ),
    "boolean": (("boolean",), "{0}::text", "{0}::VARCHAR"),
    "int": (_WHOLE, "{0}::text", "{0}::VARCHAR"),
    "long": (_WHOLE, "{0}::text", "{0}::VARCHAR"),
    "decimal": ((*_WHOLE, "numeric", "money"), "trim_scale({0}::numeric)::text", _TRIMMED),
    "double": (
        ("double precision", "real"),
        "('x' || encode(float8send({0}::text::float8), 'hex'))::bit(64)::bigint::text",
        "{0}::VARCHAR",
    ),
    "date": (("date",), _FINITE.format("{0} - date '1970-01-01'"), "date_diff('day', DATE '1970-01-01', {0})::VARCHAR"),
    "timestamp": (("timestamp with time zone",), _MICROS, "epoch_us({0})::VARCHAR"),
    "timestamp_ntz": (("timestamp without time zone",), _MICROS, "epoch_us({0})::VARCHAR"),
    "binary": (("bytea",), "encode({0}, 'hex')", "lower(hex({0}))"),
    "json": (("jsonb",), "{0}::text", "{0}"),
    "array": (
        ("text[]", "character varying[]", "uuid[]", "smallint[]", "integer[]", "bigint[]"),
        (
            f"(SELECT concat('[', string_agg({_ELEMENT.format('text')}, ',' ORDER BY n), ']') "
            "FROM unnest({0}) WITH ORDINALITY u(e, n) HAVING {0} IS NOT NULL)"
        ),
        f"'[' || array_to_string(list_transform({{0}}, lambda e: {_ELEMENT.format('VARCHAR')}), ',') || ']'",
    ),
}
"""Declared type -> types of PostgreSQL, and how PostgreSQL and DuckDB write a value of it as one and the same text.

A double is written as the whole number of its bits, as which DuckDB is given it.
"""
_PLACED_BY = (
    "cdc_op", "cdc_snapshot", "cdc_commit_lsn", "cdc_lsn", "cdc_at", "cdc_transaction", "cdc_unchanged", "cdc_missing"
)  # fmt: skip
_LACKS = (
    "list_contains(coalesce(cdc_unchanged, []), {0}) "
    "OR list_contains(string_split(coalesce(cdc_missing, ''), ', '), {0})"
)


@dataclass(frozen=True, kw_only=True)
class ComparedTable:
    """The result of a comparison with the database.

    Attributes:
        rows: the number of rows of the database that were compared.
        missing, extra, different: primary keys of rows that only the database has, that only the changes give,
            and that both have with different values.
        left_out: columns that are not compared: encrypted, or of a type that the two systems write differently.
    """

    table: str
    rows: int
    missing: Sequence[str] = ()
    extra: Sequence[str] = ()
    different: Sequence[str] = ()
    left_out: Sequence[str] = ()

    @property
    def differing(self) -> int:
        """The number of rows that are not the same on both sides."""
        return len(self.missing) + len(self.extra) + len(self.different)

    @property
    def fault(self) -> str:
        """The difference, for people; empty if there is none."""
        kinds = {"missing": self.missing, "extra": self.extra, "different": self.different}
        differences = [
            f"{len(keys):,} {kind} ({'; '.join(keys[:EXAMPLES])}{'; ...' if len(keys) > EXAMPLES else ''})"
            for kind, keys in kinds.items()
            if keys
        ]
        return (
            f"its changes do not give the rows of {self.table} in the database: {', '.join(differences)}"
            if differences
            else ""
        )


def audit_captured(platform: Platform, tables: Sequence[Table], turn: Turn) -> list[Comparison]:
    """Compares the captured tables from which tables are computed with their rows in the database; all if few."""
    topics = {name: topic for table in tables for name, topic in platform.registry.above(table).topics.items()}
    return [
        _audit_captured(platform.lake, topics[capture.topic], capture, turn)
        for capture in captures(platform.registry)
        if not capture.is_outbox and capture.topic in topics and platform.lake.exists(capture.topic)
    ]


def _audit_captured(lake: Lake, topic: Topic, capture: Capture, turn: Turn) -> Comparison:
    name = topic.full_name
    audited = Comparison(subject=name, other=f"{capture.table} of the database")
    turn = Turn() if lake.rows(name) <= most_rows(lake.settings, COMMITTED) else turn
    try:
        compared = compare_with_database(lake, topic, capture, turn)
    except TwofoldError as error:
        return replace(audited, fault=f"{name} is not compared with the database: {error.message}")
    Ledgers(lake).record_topic_audit(
        name, "audit_database", records=compared.rows, faults=compared.differing, turn=turn.number, of=turn.of
    )
    fault = f"{name}: {compared.fault}; {again(name)}" if compared.fault else ""
    differing, left_out = compared.differing, compared.left_out
    return replace(audited, rows=compared.rows, differing=differing, left_out=left_out, fault=fault)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The transactions and the mark that one transaction of the database saw.

    Attributes:
        before: the number of the first transaction that had not begun.
        running: numbers of those that had not ended.
        at: its time.
        mark: the LSN of the mark that it wrote.
    """

    before: int
    running: Sequence[int]
    at: datetime
    mark: int

    @property
    def unseen(self) -> str:
        """SQL that says whether a change is of a transaction that was not seen.

        Transaction numbers have 32 bits and wrap around; a transaction that was not seen was committed later.
        """
        running = ", ".join(str(number % 2**32) for number in self.running) or "NULL"
        later = f"(cdc_transaction - {self.before % 2**32} + {2**32}) % {2**32} < {2**31}"
        return (
            f"coalesce(cdc_lsn > 0 AND cdc_at > {DUCKDB.literal(self.at)} - INTERVAL 1 DAY AND "
            f"({later} OR coalesce(cdc_transaction IN ({running}), false)), false)"
        )


@dataclass(frozen=True)
class _Dialect:
    """An engine's SQL for a digest of a text, for a number of its first digits, and for a list."""

    digest: str
    number: str
    list: str

    def bucket(self, key: Sequence[str]) -> str:
        """Writes the bucket of a row by its primary key, given as texts."""
        return f"{self.number.format(self.digest.format(_joined(key)), 8, 32)} % {BUCKETS}"

    def placed(self, key: Sequence[str], columns: Sequence[str], texts: str) -> str:
        """Writes a query of bucket, row hash, key and column hashes, over rows whose columns are texts."""
        row = self.number.format(self.digest.format(_joined([*key, *columns])), 15, 60)
        each = ", ".join(f"coalesce({self.digest.format(name)}, 'n')" for name in columns)
        return (
            f"SELECT {self.bucket(key)} AS bucket, {row} AS hash, {self.list.format(', '.join(key))} AS key, "
            f"{self.list.format(each)} AS hashes FROM ({texts}) texts"
        )


def _joined(texts: Sequence[str]) -> str:
    """Writes SQL that joins several texts unambiguously."""
    return " || ".join(f"coalesce(length({text}) || ':' || {text}, 'n')" for text in texts)


_POSTGRES = _Dialect(
    "md5(convert_to({0}, 'UTF8'))", "('x' || substr({0}, 1, {1}))::bit({2})::bigint", "ARRAY[{0}]::text[]"
)
_DUCKDB = _Dialect("md5({0})", "('0x' || substr({0}, 1, {1}))::BIGINT", "[{0}]::VARCHAR[]")
_SNAPSHOT = """
SELECT pg_snapshot_xmax(s)::text::bigint, ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(s) x), clock_timestamp()
FROM pg_current_snapshot() s"""
_TOTALS = "SELECT bucket, count(*) AS rows, sum(hash)::text AS total FROM ({0}) placed WHERE {1} GROUP BY bucket"


def compare_with_database(
    lake: Lake, topic: Topic, capture: Capture, turn: Turn, *, waits: bool = True
) -> ComparedTable:
    """Compares the captured table in the database with its changes: first hashes of buckets, then rows.

    Args:
        turn: the part of the buckets, by primary key, that is compared.
        waits: until the events have all changes that the database had when it was queried; otherwise changes that are
            in transit, or lost, count as differences.

    Raises:
        CaptureFailed: the changes do not arrive within a minute, or the database has no such key.
        DatabaseUnreachable: retryable.
    """
    comparison = _Comparison(lake, topic, capture.table, columns_of(lake.settings, capture.table), waits)
    unlike = [name for name in comparison.key if name not in comparison.written]
    if unlike:
        raise CaptureFailed(
            f"{topic.full_name} cannot be compared with {capture.table} by its key: {', '.join(unlike)} is not there, "
            "or of a type that two systems write in two ways.",
            topic=topic.full_name,
        )
    bucket_filter = f"{{0}} % {turn.of} = {turn.number}"
    seen, theirs = comparison.asked(_TOTALS.format(comparison.theirs, bucket_filter.format("bucket")))
    ours = comparison.ours(seen, _TOTALS, bucket_filter).to_pylist()
    one = {bucket: (rows, total) for bucket, rows, total in theirs}
    other = {row["bucket"]: (row["rows"], row["total"]) for row in ours}
    compared = ComparedTable(
        table=capture.table, rows=sum(rows for rows, _ in one.values()), left_out=comparison.left_out
    )
    differing = [bucket for bucket in one.keys() | other.keys() if one.get(bucket) != other.get(bucket)]
    return comparison.by_row(compared, differing) if differing else compared


@dataclass(frozen=True)
class _Comparison:
    lake: Lake
    topic: Topic
    table: str
    catalog: Sequence[CatalogColumn]
    waits: bool

    @cached_property
    def written(self) -> dict[str, tuple[str, str]]:
        """The SQL of PostgreSQL and of DuckDB that writes each column as text, by column; the primary key first."""
        found = {}
        types = {column.name: column for column in self.catalog if not column.is_virtual}
        left_out = self.topic.covered
        declared = {n: kind for n, kind in self.topic.types.items() if not n.startswith("cdc_") and n not in left_out}
        for name, kind in sorted(declared.items(), key=lambda item: item[0] not in self.topic.dedup_keys):
            kinds, theirs, ours = _WRITTEN[kind.name]
            column = types.get(name)
            if column and (SIZE.sub("", column.type) in kinds or (kind.name == "string" and column.kind in "er")):
                found[name] = theirs.format(POSTGRES.name(name)), ours.format(DUCKDB.name(name))
        return found

    @cached_property
    def key(self) -> list[str]:
        return [name for name in self.topic.dedup_keys if not name.startswith("cdc_")]

    @property
    def left_out(self) -> list[str]:
        return [name for name in self.topic.types if not name.startswith("cdc_") and name not in self.written]

    @property
    def theirs(self) -> str:
        """The query of the database's rows with their buckets and hashes, in PostgreSQL's SQL."""
        texts = ", ".join(f"{theirs} AS {POSTGRES.name(name)}" for name, (theirs, _) in self.written.items())
        return self._placed(_POSTGRES, f"SELECT {texts} FROM {self.table}")

    def _placed(self, dialect: _Dialect, texts: str) -> str:
        others = [name for name in self.written if name not in self.key]
        return dialect.placed(list(map(DUCKDB.name, self.key)), list(map(DUCKDB.name, others)), texts)

    def asked(self, select: str) -> tuple[_Seen, list[TupleRow]]:
        """Runs a query on the database; returns what its transaction saw, and the rows, once the events have both."""
        with connected(self.lake.settings, timeout_s=_TIMEOUT_S) as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            [(before, running, at)] = connection.execute(_SNAPSHOT)
            [(mark,)] = connection.execute(f"SELECT (mark - '0/0'::pg_lsn)::bigint FROM ({WRITE_MARK} AS mark) t")
            rows = connection.execute(select).fetchall()
        if self.waits:
            self._wait_for(mark)
        return _Seen(before=before, running=running, at=at, mark=mark), rows

    def _wait_for(self, mark: int) -> None:
        deadline, name = time.monotonic() + ARRIVAL_S, self.topic.full_name
        passed = f"cdc_op = 'mark' AND cdc_lsn >= {mark}"
        while not pa.table(self.lake.open(name).scan(columns=["cdc_lsn"], predicate=passed)).num_rows:
            if time.monotonic() > deadline:
                raise CaptureFailed(
                    f"{name} is not compared with the database: its events have not reached LSN {mark} within "
                    f"{ARRIVAL_S:.0f} s.",
                    hint=f"`{COMMAND} status` shows whether the capture and the stream run.",
                    topic=name,
                )
            time.sleep(0.5)

    def ours(self, seen: _Seen, select: str, wanted: str) -> pa.Table:
        """Runs a query over the rows that follow from the changes of the transactions that were seen.

        Args:
            select: a query with placeholders for the rows and for a condition.
            wanted: a condition with a placeholder for the bucket; other buckets are not computed.
        """
        others = [name for name in self.written if name not in self.key]
        changes = self.lake.open(self.topic.full_name).scan(
            columns=[*self.key, *others, *_PLACED_BY], predicate=self.topic.row_condition
        )
        key = DUCKDB.names(self.key)
        values = [
            f"(arg_max(struct_pack(v := {DUCKDB.name(name)}), row({PLACE})) "
            f"FILTER (cdc_op != 'delete' AND NOT ({_LACKS.format(DUCKDB.literal(name))}))).v AS {DUCKDB.name(name)}"
            for name in others
        ]
        chosen = wanted.format(f"({_DUCKDB.bucket([self.written[name][1] for name in self.key])})")
        rows = query(
            f"SELECT {', '.join([key, *values])} FROM changes "
            f"WHERE {chosen} AND cdc_snapshot > 0 AND NOT {seen.unseen} "
            f"GROUP BY {key} HAVING arg_max(cdc_op, row({PLACE})) != 'delete'",
            changes=changes,
        )
        bits = {name: _bits(rows[name]) for name in rows.column_names}
        texts = ", ".join(f"{ours} AS {DUCKDB.name(name)}" for name, (_, ours) in self.written.items())
        placed = self._placed(_DUCKDB, f"SELECT {texts} FROM rows")
        return query(select.format(placed, wanted.format("bucket")), rows=pa.table(bits))

    def by_row(self, compared: ComparedTable, buckets: Sequence[int]) -> ComparedTable:
        """Adds the rows that differ in these buckets to the result, as of a later moment."""
        bucket_filter = f"{{0}} IN ({', '.join(map(str, buckets))})"
        rows = "SELECT key, hashes FROM ({0}) placed WHERE {1}"
        seen, theirs = self.asked(rows.format(self.theirs, bucket_filter.format("bucket")))
        ours = self.ours(seen, rows, bucket_filter).to_pylist()
        one = {tuple(key): hashes for key, hashes in theirs}
        other = {tuple(row["key"]): row["hashes"] for row in ours}
        columns = [name for name in self.written if name not in self.key]
        return replace(
            compared,
            missing=[self._shown(key) for key in sorted(one.keys() - other.keys())],
            extra=[self._shown(key) for key in sorted(other.keys() - one.keys())],
            different=[
                f"{self._shown(key)}: "
                + ", ".join(n for n, a, b in zip(columns, one[key], other[key], strict=True) if a != b)
                for key in sorted(one.keys() & other.keys())
                if one[key] != other[key]
            ],
        )

    def _shown(self, key: Sequence[str]) -> str:
        """Formats a key for people."""
        return ", ".join(
            f"{name}={_as_written(text, self.topic.types[name].name)}" for name, text in zip(self.key, key, strict=True)
        )


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_float64(column.type):
        return column
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())


def _as_written(text: str, kind: str) -> str:
    if kind == "date":
        return (EPOCH + timedelta(days=int(text))).date().isoformat()
    if kind in ("timestamp", "timestamp_ntz"):
        return (EPOCH + timedelta(microseconds=int(text))).replace(tzinfo=None).isoformat()
    return text
