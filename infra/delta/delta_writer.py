"""The one writer of Delta tables: two engines, the same guarantees.

Small commits go through delta-rs in this process (tenths of a second), large ones through Spark. With either engine a
commit carries a transaction id, so that it happens once, and records the source of its rows in `userMetadata`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import pyarrow as pa

from twofold.infra.delta.compaction import after_commit
from twofold.infra.delta.file_statistics import parquet_properties
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.logged_commit import WRITER, LoggedCommit
from twofold.infra.delta.merge import Merge, equal, greater
from twofold.infra.delta.open_table import OpenTable
from twofold.infra.delta.trim import Trim
from twofold.infra.errors import QualityFailed, SchemaMismatch, WriteConflict
from twofold.infra.rows.rows import are_here, column_names, column_types, dialect_of, here, in_spark, run_sql
from twofold_algebra.sql.names import DATAFUSION, SPARK, Dialect

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import TypeIs

    from twofold.infra.rows.rows import Rows

Change = Literal["insert", "update", "delete"]
CHANGE = "_change"
BEFORE = "_before_"
_ATTEMPTS = 12
_CHECKPOINT_EVERY = 20  # commits: delta-rs reads those after the last checkpoint again with each commit, 0.1 ms of each
_TIDY_EVERY, _TIDY_BYTES = 100, 256 << 20  # commits, or bytes that they added
_log = logging.getLogger("twofold.writer")


@dataclass(frozen=True, kw_only=True)
class CommitTag:
    """The transaction id and metadata of a commit.

    Attributes:
        app: the stream of commits that it belongs to; the table remembers the last `version` of each.
        version: grows with every commit of `app`; a commit with no greater one was made already and is skipped.
        info: offset ranges, cause, run, code fingerprint: kept as JSON in `userMetadata`.
    """

    app: str
    version: int
    info: Mapping[str, object] = field(default_factory=dict)

    def metadata(self, writer: str) -> str:
        """Encodes the info as JSON, with this writer's id, to distinguish its commit from others with the same tag."""
        return json.dumps({**self.info, WRITER: writer}, default=str, separators=(",", ":"))


@dataclass(frozen=True)
class Written:
    """The effect of a commit; all zero if it had been made before."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files: int = 0
    version: int | None = None
    skipped: bool = False

    def __add__(self, other: Written) -> Written:
        """Adds the effect of a later commit."""
        return Written(
            inserted=self.inserted + other.inserted,
            updated=self.updated + other.updated,
            deleted=self.deleted + other.deleted,
            files=self.files + other.files,
            version=self.version if other.version is None else other.version,
        )

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted

    @property
    def is_nothing(self) -> bool:
        """Whether there was no commit, neither now nor before, since nothing had to change."""
        return self.version is None and not self.skipped


class Writer:
    """Writes one Delta table.

    Args:
        keep_small: called instead of a trim after every hundredth commit, or after many bytes.
    """

    def __init__(
        self,
        lake: Lake,
        name: str,
        spark: SparkSession | None = None,
        keep_small: Callable[[Lake, str], None] | None = None,
    ) -> None:
        self.lake, self.name = lake, name
        self._spark, self._keep_small = spark, keep_small
        self._id = uuid4().hex[:12]
        self._table, self._trim = OpenTable(lake, name), Trim(lake, name)
        self._untidy_bytes = 0

    def append(self, rows: Rows, stamp: CommitTag) -> Written:
        """Appends the rows, once.

        Raises:
            SchemaMismatch: names the missing and the unexpected columns.
            WriteConflict: after bounded retries.
        """
        if self._through_rust(rows):
            return self._commit(rows, stamp, lambda table: _append_arrow(table, rows, self._properties(stamp)))
        frame = self._frame(rows)
        return self._commit(rows, stamp, lambda table: self._append_spark(frame, stamp))

    def append_new(self, app: str, new: Callable[[], pa.Table]) -> pa.Table:
        """Appends the rows that `new` returns; `new` reads the table to find them.

        Args:
            app: the writer's name; if several write at once under one name, one succeeds, and the others call `new`
                again.

        Returns:
            The rows that were written; none if the table has them all, so that a call can be repeated after a crash.

        Raises:
            WriteConflict: other writers were faster each time. Retryable.
        """
        for _ in range(_ATTEMPTS):
            # Before the table is read: another writer takes this number meanwhile, and this commit is skipped.
            number = self.next_number(app)
            rows = new()
            if not len(rows) or not self.append(rows, CommitTag(app=app, version=number)).skipped:
                return rows
        raise WriteConflict(f"{self.name}: others write as {app}.", hint="Run it again; look for a second driver.")

    def upsert(
        self,
        rows: Rows,
        key: Sequence[str],
        stamp: CommitTag,
        *,
        greatest: Sequence[str] = (),
        keep: bool = False,
    ) -> Written:
        """Inserts rows with a new `key`, replaces rows that differ, and leaves equal rows untouched.

        Args:
            rows: unique by `key`.
            greatest: replace only if the new row is greater here, compared left to right, nulls lowest.
            keep: never replace: the first row of a key stays.

        Returns:
            All zero, and no commit, when every row is there already.

        Raises:
            QualityFailed: two rows of one key.
            SchemaMismatch: names the missing and the unexpected columns.
            WriteConflict: after bounded retries.
        """
        rows, by = self._placed(rows)
        columns = column_names(rows)
        others = [c for c in columns if c not in key]
        if keep:
            condition = "false"
        elif greatest:
            condition = greater(by, greatest)
        else:
            condition = " OR ".join(f"NOT {equal(by, c, of=rows)}" for c in others) or "false"
        plan = Merge(
            on=" AND ".join(equal(by, c) for c in key),
            update=None if keep else condition,
            columns=columns,
            key=tuple(key),
        )
        return self._merge(rows, plan, stamp, set())

    def apply(self, changes: Rows, key: Sequence[str], stamp: CommitTag, *, greatest: Sequence[str] = ()) -> Written:
        """Publishes a difference: each row is an insert, an update or a delete of the row with its key.

        Args:
            changes: the table's columns, `_change` (insert, update, delete), and `_before_<column>`, the old values
                when the difference was computed: a row that changed since is left alone, so that no newer write is
                lost.
            greatest: an insert whose key exists replaces the row if it is greater in these columns, compared left to
                right, nulls lowest; if empty, the row stays.

        Returns:
            The rows that really changed; fewer than requested if other writers were faster.
        """
        changes, by = self._placed(changes)
        columns = [c for c in column_names(changes) if c != CHANGE and not c.startswith(BEFORE)]
        others = [c for c in columns if c not in key]
        same = " AND ".join(equal(by, c, BEFORE + c, changes) for c in others) or "true"
        update = f"s.{CHANGE} = 'update' AND {same}"
        if greatest:
            update = f"({update}) OR (s.{CHANGE} = 'insert' AND {greater(by, greatest)})"
        plan = Merge(
            on=" AND ".join(equal(by, c) for c in key),
            update=update,
            delete=f"s.{CHANGE} = 'delete' AND {same}",
            insert=f"s.{CHANGE} = 'insert'",
            columns=columns,
            key=tuple(key),
        )
        return self._merge(changes, plan, stamp, {CHANGE, *(BEFORE + c for c in others)})

    def replace(self, rows: DataFrame, stamp: CommitTag) -> Written:
        """Overwrites the table's rows and columns with these, in one commit."""
        table = self.newest()
        if _done(table, stamp):
            return Written(skipped=True)
        before, gone = table.version(), table.count()
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.options(**self._options(stamp)).save(self.lake.uri(self.name))
        return replace(self._written(stamp, before), deleted=int(gone))

    def done(self, stamp: CommitTag) -> bool:
        """Whether the table has a commit of that app with this version or a later one."""
        return _done(self.newest(), stamp)

    def _merge(self, rows: Rows, plan: Merge, stamp: CommitTag, extra: set[str]) -> Written:
        if self._through_rust(rows):
            _require_sound_keys(self.name, rows, plan.key)

            def by_rust(table: DeltaTable) -> None:
                plan.by_rust(table, _nested_as_in(table, rows), self._properties(stamp))

            return self._commit(rows, stamp, by_rust, extra)
        uri, says = self.lake.uri(self.name), self._session(stamp)
        _require_sound_keys(self.name, rows, plan.key)
        return self._commit(rows, stamp, lambda _: plan.by_spark(uri, rows, says), extra)

    def _commit(
        self,
        rows: Rows,
        stamp: CommitTag,
        attempt: Callable[[DeltaTable], None],
        extra: Collection[str] = (),
    ) -> Written:
        """Commits the rows; if another writer of the table was faster, tries again on a fresh snapshot."""
        failure: Exception | None = None
        for number in range(_ATTEMPTS):
            table = self.newest()
            _require_columns(self.name, table, rows, extra)
            if _done(table, stamp):
                return Written(skipped=True)
            before = table.version()
            try:
                attempt(table)
            except Exception as error:
                if not _lost_a_race(error):
                    raise
                _log.info("conflict table=%s app=%s attempt=%d", self.name, stamp.app, number)
                failure = error
                self._table = OpenTable(self.lake, self.name)
                time.sleep(min(0.02 * 2**number, 1.0))
            else:
                return self._written(stamp, before)
        raise WriteConflict(
            f"{self.name}: {_ATTEMPTS} attempts to commit {stamp.app} {stamp.version} lost against other writers.",
            hint="Run the command again; if it happens often, look for a second driver of the same domain.",
        ) from failure

    def newest(self) -> DeltaTable:
        """Returns the table at its newest version; the part of its log that was read before is not read again."""
        return self._table.newest()

    def next_number(self, app: str) -> int:
        """Returns the version of the app's next commit tag."""
        return int(self.newest().transaction_version(app) or 0) + 1

    def _written(self, stamp: CommitTag, before: int) -> Written:
        """Returns the effect of the commit with this tag; others may have committed before and after it."""
        commit = self.lake.commit_of(self.name, stamp.app, stamp.version, before)
        if commit is None:
            return Written(skipped=self.done(stamp))
        if commit.version < self.lake.history(self.name).floor().changes:
            # This process slept for longer than the history: the commit fills a hole, and no reader meets it.
            self.lake.remove_commit(self.name, commit.version)
            self._table = OpenTable(self.lake, self.name)
            raise WriteConflict(
                f"{self.name}: version {commit.version} was gone when it was written.", hint="Run it again."
            )
        if commit.writer != self._id:
            # Spark silently skips a commit that another writer has made.
            return Written(skipped=True)
        self.lake.write_checksum(self.name, commit.version)
        if commit.version % _CHECKPOINT_EVERY == 0:
            self._table.checkpoint()
        self._untidy_bytes += sum(added.size for added in commit.added)
        if commit.version % _TIDY_EVERY == 0 or self._untidy_bytes > _TIDY_BYTES:
            self._untidy_bytes = 0
            if self._keep_small:
                self._keep_small(self.lake, self.name)
            else:
                self._trim.when_due()
        return written_by(commit)

    def _properties(self, stamp: CommitTag) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(
            custom_metadata={"userMetadata": stamp.metadata(self._id)},
            app_transactions=[Transaction(stamp.app, stamp.version)],
            max_commit_retries=15,
        )

    def _through_rust(self, rows: Rows) -> TypeIs[pa.Table]:
        return are_here(rows) and self.lake.settings.engine != "spark"

    def _options(self, stamp: CommitTag) -> dict[str, str | int]:
        """Returns the writer options that put the tag into a commit of Spark."""
        return {"txnAppId": stamp.app, "txnVersion": stamp.version, "userMetadata": stamp.metadata(self._id)}

    def _session(self, stamp: CommitTag) -> dict[str, str]:
        """Returns the session options that put the tag into a commit of Spark, for statements without options."""
        return {
            "spark.databricks.delta.write.txnAppId": stamp.app,
            "spark.databricks.delta.write.txnVersion": str(stamp.version),
            "spark.databricks.delta.commitInfo.userMetadata": stamp.metadata(self._id),
        }

    def _append_spark(self, frame: DataFrame, stamp: CommitTag) -> None:
        frame.write.format("delta").mode("append").options(**self._options(stamp)).save(self.lake.uri(self.name))

    def _placed(self, rows: Rows) -> tuple[Rows, Dialect]:
        """Converts the rows for the engine that merges them; returns them with the engine's SQL dialect."""
        return (rows, DATAFUSION) if self._through_rust(rows) else (self._frame(rows), SPARK)

    def _frame(self, rows: Rows) -> DataFrame:
        if not are_here(rows):
            return rows
        if self._spark is None:
            raise RuntimeError("a Writer without a session got Arrow rows and the setting engine=spark")
        return in_spark(self._spark, rows)


def written_by(commit: LoggedCommit) -> Written:
    """Computes the effect of a commit from its metrics."""
    return Written(
        inserted=commit.count("num_target_rows_inserted", "num_added_rows", "numTargetRowsInserted", "numOutputRows"),
        updated=commit.count("num_target_rows_updated", "numTargetRowsUpdated"),
        deleted=commit.count("num_target_rows_deleted", "numTargetRowsDeleted"),
        files=len(commit.added),
        version=commit.version,
    )


def _require_columns(name: str, table: DeltaTable, rows: Rows, extra: Collection[str]) -> None:
    expected = {f.name for f in table.schema().fields} | set(extra)
    came = set(column_names(rows))
    if expected != came:
        raise SchemaMismatch(
            f"{name}: missing columns: {', '.join(sorted(expected - came)) or 'none'}; "
            f"unexpected columns: {', '.join(sorted(came - expected)) or 'none'}.",
            hint="The declaration changed since the table was made: rebuild it under its new definition.",
        )


def _nested_as_in(table: DeltaTable, rows: pa.Table) -> pa.Table:
    """Casts nested values of the rows to the table's own types.

    Spark marks array items as nullable whenever it has cast them; delta-rs casts them to no other type.
    """
    types = {field.name: field.type for field in pa.schema(table.schema()) if pa.types.is_nested(field.type)}
    typed = [(field, types.get(field.name.removeprefix(BEFORE))) for field in rows.schema]
    if all(kind is None or kind == field.type for field, kind in typed):
        return rows
    return rows.cast(pa.schema([field if kind is None else field.with_type(kind) for field, kind in typed]))


def _require_sound_keys(name: str, rows: Rows, key: Sequence[str]) -> None:
    """Refuses keys that occur in several rows, and keys that Python cannot hold.

    delta-rs would insert both rows of a key; Spark refuses them only if they match an existing row.
    """
    types, by = column_types(rows), dialect_of(rows)
    times = [by.name(column) for column in key if types[column].startswith(("date", "timestamp"))]
    held = "CAST({} AS DATE) BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'"
    is_beyond = " OR ".join(f"NOT ({held.format(time)})" for time in times) or "false"
    names = by.names(key)
    counted = f"SELECT {names}, count(*) AS _count, {is_beyond} AS _is_beyond FROM rows GROUP BY {names}"
    wrong = here(run_sql(f"SELECT * FROM ({counted}) AS counted WHERE _count > 1 OR _is_beyond LIMIT 1", rows=rows))
    if not len(wrong):
        return
    if wrong["_is_beyond"][0].as_py():
        raise QualityFailed(
            f"{name}: a row to be written has a year outside of 1 to 9999 in its key, {', '.join(key)}; nothing was "
            "written.",
            hint="Leave such rows out in the table's function, or let it return the date as a number or a text.",
        )
    repeated = wrong.select(list(key)).to_pylist()[0]
    raise QualityFailed(
        f"{name}: several rows to be written have the key {repeated}; nothing was written.",
        hint="The table's function must return one row per key.",
    )


def _done(table: DeltaTable, stamp: CommitTag) -> bool:
    last = table.transaction_version(stamp.app)
    return last is not None and last >= stamp.version


def _lost_a_race(error: Exception) -> bool:
    """Whether the same write may succeed on a newer snapshot."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    if isinstance(error, CommitFailedError):
        return True
    if isinstance(error, DeltaError):
        # The last one: this process slept until its version was trimmed.
        return any(sign in str(error).lower() for sign in ("transaction", "conflict", "invalid table version"))
    # Spark's are named io.delta.exceptions.Concurrent*, whichever Python class wraps them.
    signs = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED")
    return "Concurrent" in type(error).__name__ or any(sign in str(error) for sign in signs)


def _append_arrow(table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    from deltalake import write_deltalake

    write_deltalake(
        table,
        rows,
        mode="append",
        commit_properties=properties,
        post_commithook_properties=after_commit(),
        writer_properties=parquet_properties(table),
    )
