"""The one way rows reach a Delta table: two engines, the same guarantees.

Small commits go through delta-rs in this process (tenths of a second), large ones through Spark. Whoever writes, a
commit carries a transaction id that makes it happen once, and says in `userMetadata` where its rows come from.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from infra.errors import SchemaMismatch, WriteConflict
from tables.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = "pa.Table | DataFrame"
Change = Literal["insert", "update", "delete"]
CHANGE = "_change"
BEFORE = "_before_"
_ATTEMPTS = 12
_log = logging.getLogger("twofold.writer")


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """What a commit says of itself.

    Attributes:
        app: the stream of commits that it belongs to; the table remembers the last `version` of each.
        version: grows with every commit of `app`; one that is not greater was made already and is skipped.
        info: offset ranges, cause, run, code fingerprint: kept as JSON in `userMetadata`.
    """

    app: str
    version: int
    info: Mapping[str, object] = field(default_factory=dict)

    @property
    def metadata(self) -> str:
        return json.dumps(self.info, default=str, separators=(",", ":"))


@dataclass(frozen=True)
class Written:
    """What a commit did; all zero when it had been made before."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files: int = 0
    version: int | None = None
    skipped: bool = False

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted


class Writer:
    """Writes one Delta table."""

    def __init__(self, lake: Lake, name: str, spark: SparkSession | None = None) -> None:
        self.lake, self.name = lake, name
        self._spark = spark

    def collect(self, frame: DataFrame) -> pa.Table | DataFrame:
        """Rows small enough for delta-rs as an Arrow table; others as the frame, to be written by Spark.

        A frame of a micro-batch with state is computed once only when `bound` rows suffice to hold it.
        """
        engine, bound = self.lake.settings.engine, self.lake.settings.small_rows
        if engine == "spark":
            return frame
        if engine == "delta-rs":
            return frame.toArrow()
        few = frame.limit(bound + 1).toArrow()
        return few if len(few) <= bound else frame

    def append(self, rows: pa.Table | DataFrame, stamp: Stamp) -> Written:
        """Add the rows, once.

        Raises:
            SchemaMismatch: names the missing and the unexpected columns.
            WriteConflict: after bounded retries.
        """
        self._require_columns(rows, set())
        if isinstance(rows, pa.Table) and self.lake.settings.engine != "spark":
            return self._retry(lambda: self._append_arrow(rows, stamp), stamp)
        return self._append_spark(self._frame(rows), stamp)

    def upsert(
        self,
        rows: pa.Table | DataFrame,
        key: Sequence[str],
        stamp: Stamp,
        *,
        greatest: Sequence[str] = (),
        keep: bool = False,
    ) -> Written:
        """Insert rows whose `key` is new, replace the others; rows that stay equal are not touched.

        Args:
            rows: unique by `key`.
            greatest: replace only where the new row is greater here, compared left to right, nulls lowest.
            keep: never replace: the first row of a key stays.
        """
        self._require_columns(rows, set())
        columns = self._columns(rows)
        others = [c for c in columns if c not in key]
        if keep:
            condition = "false"
        elif greatest:
            condition = _greater(list(greatest))
        else:
            condition = " OR ".join(f"NOT {_same(c)}" for c in others) or "false"
        plan = _Merge(
            on=" AND ".join(_same(c) for c in key),
            update=None if keep else condition,
            columns=columns,
            key=tuple(key),
        )
        return self._merge(rows, plan, stamp)

    def apply(self, changes: pa.Table | DataFrame, key: Sequence[str], stamp: Stamp) -> Written:
        """Publish a difference: each row is an insert, an update or a delete of the row with its key.

        Args:
            changes: the table's columns, `_change` (insert, update, delete) and, as `_before_<column>`, what the row
                was when the difference was taken: a row that changed since is left alone, so that nobody's newer
                write is lost.

        Returns:
            Rows really changed; fewer than asked for when others were faster.
        """
        columns = [c for c in self._columns(changes) if c != CHANGE and not c.startswith(BEFORE)]
        self._require_columns(changes, {CHANGE, *(BEFORE + c for c in columns if c not in key)})
        others = [c for c in columns if c not in key]
        same = " AND ".join(_same(c, BEFORE + c) for c in others) or "true"
        plan = _Merge(
            on=" AND ".join(_same(c) for c in key),
            update=f"s.`{CHANGE}` = 'update' AND {same}",
            delete=f"s.`{CHANGE}` = 'delete' AND {same}",
            insert=f"s.`{CHANGE}` = 'insert'",
            columns=columns,
            key=tuple(key),
        )
        return self._merge(changes, plan, stamp)

    def done(self, stamp: Stamp) -> bool:
        """Whether a commit of that app and version, or a later one, is in the table."""
        last = self.lake.open(self.name).transaction_version(stamp.app)
        return last is not None and last >= stamp.version

    def _merge(self, rows: pa.Table | DataFrame, plan: _Merge, stamp: Stamp) -> Written:
        if isinstance(rows, pa.Table) and self.lake.settings.engine != "spark":
            return self._retry(lambda: self._merge_arrow(rows, plan, stamp), stamp)
        return self._retry(lambda: self._merge_spark(self._frame(rows), plan, stamp), stamp)

    def _retry(self, attempt: Any, stamp: Stamp) -> Written:
        """Try until it is in: a lost race against another writer of the table is tried again with a fresh snapshot."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        for number in range(_ATTEMPTS):
            if self.done(stamp):
                return Written(skipped=True)
            try:
                written: Written = attempt()
            except CommitFailedError as error:
                _log.info("conflict table=%s app=%s attempt=%d", self.name, stamp.app, number)
                failure: Exception = error
            except DeltaError as error:
                if "transaction" not in str(error).lower() and "conflict" not in str(error).lower():
                    raise
                failure = error
            except Exception as error:
                if type(error).__module__ != "delta.exceptions" and "Concurrent" not in type(error).__name__:
                    raise
                failure = error
            else:
                return written
            time.sleep(min(0.02 * 2**number, 1.0))
        raise WriteConflict(
            f"{self.name}: {_ATTEMPTS} attempts to commit {stamp.app} {stamp.version} lost against other writers.",
            hint="Run the command again; if it happens often, look for a second driver of the same domain.",
        ) from failure

    def _append_arrow(self, rows: pa.Table, stamp: Stamp) -> Written:
        from deltalake import write_deltalake

        table = self.lake.open(self.name)
        before = table.version()
        write_deltalake(table, rows, mode="append", commit_properties=_properties(stamp))
        return Written(inserted=len(rows), files=1, version=before + 1)

    def _merge_arrow(self, rows: pa.Table, plan: _Merge, stamp: Stamp) -> Written:
        table = self.lake.open(self.name)
        merger = table.merge(
            rows, plan.rust(plan.on), source_alias="s", target_alias="t", commit_properties=_properties(stamp)
        )
        values = {f'"{c}"': f's."{c}"' for c in plan.columns}
        if plan.delete:
            merger = merger.when_matched_delete(predicate=plan.rust(plan.delete))
        if plan.update:
            merger = merger.when_matched_update(updates=values, predicate=plan.rust(plan.update))
        merger = merger.when_not_matched_insert(
            updates=values, predicate=plan.rust(plan.insert) if plan.insert else None
        )
        before = table.version()
        metrics = merger.execute()
        table.update_incremental()
        return Written(
            inserted=metrics["num_target_rows_inserted"],
            updated=metrics["num_target_rows_updated"],
            deleted=metrics["num_target_rows_deleted"],
            files=metrics["num_target_files_added"],
            version=table.version() if table.version() > before else None,
        )

    def _append_spark(self, frame: DataFrame, stamp: Stamp) -> Written:
        if self.done(stamp):
            return Written(skipped=True)
        (
            frame.write.format("delta")
            .mode("append")
            .option("txnAppId", stamp.app)
            .option("txnVersion", stamp.version)
            .option("userMetadata", stamp.metadata)
            .save(self.lake.uri(self.name))
        )
        return self._last_commit(frame.sparkSession)

    def _merge_spark(self, frame: DataFrame, plan: _Merge, stamp: Stamp) -> Written:
        from delta.tables import DeltaTable

        # Session settings are shared by threads: a session of its own keeps this commit's id to itself.
        spark = frame.sparkSession.newSession()
        for setting, value in {
            "spark.databricks.delta.write.txnAppId": stamp.app,
            "spark.databricks.delta.write.txnVersion": str(stamp.version),
            "spark.databricks.delta.commitInfo.userMetadata": stamp.metadata,
        }.items():
            spark.conf.set(setting, value)
        target = DeltaTable.forPath(spark, self.lake.uri(self.name)).alias("t")
        merger = target.merge(frame.alias("s"), plan.on)
        values = {f"`{c}`": f"s.`{c}`" for c in plan.columns}
        if plan.delete:
            merger = merger.whenMatchedDelete(condition=plan.delete)
        if plan.update:
            merger = merger.whenMatchedUpdate(condition=plan.update, set=values)  # type: ignore[arg-type]
        merger = merger.whenNotMatchedInsert(condition=plan.insert, values=values)  # type: ignore[arg-type]
        merger.execute()
        return self._last_commit(spark)

    def _last_commit(self, spark: SparkSession) -> Written:
        from delta.tables import DeltaTable

        row = DeltaTable.forPath(spark, self.lake.uri(self.name)).history(1).collect()[0]
        metrics = row["operationMetrics"]
        return Written(
            inserted=int(metrics.get("numTargetRowsInserted", metrics.get("numOutputRows", 0))),
            updated=int(metrics.get("numTargetRowsUpdated", 0)),
            deleted=int(metrics.get("numTargetRowsDeleted", 0)),
            files=int(metrics.get("numTargetFilesAdded", metrics.get("numFiles", 0))),
            version=int(row["version"]),
        )

    def _frame(self, rows: pa.Table | DataFrame) -> DataFrame:
        if not isinstance(rows, pa.Table):
            return rows
        if self._spark is None:
            raise RuntimeError("a Writer without a session got Arrow rows and the setting engine=spark")
        return self._spark.createDataFrame(rows)

    def _columns(self, rows: pa.Table | DataFrame) -> list[str]:
        return list(rows.column_names if isinstance(rows, pa.Table) else rows.columns)

    def _require_columns(self, rows: pa.Table | DataFrame, extra: set[str]) -> None:
        expected = {f.name for f in self.lake.open(self.name).schema().fields} | extra
        came = set(self._columns(rows))
        if expected != came:
            raise SchemaMismatch(
                f"{self.name}: missing columns: {sorted(expected - came) or 'none'}; "
                f"unexpected columns: {sorted(came - expected) or 'none'}.",
                hint="The declaration changed since the table was made: rebuild it under its new definition.",
            )


@dataclass(frozen=True, kw_only=True)
class _Merge:
    """A MERGE in Spark's spelling; `rust` gives DataFusion's."""

    on: str
    columns: list[str]
    key: tuple[str, ...]
    update: str | None = None
    delete: str | None = None
    insert: str | None = None

    @staticmethod
    def rust(sql: str) -> str:
        return sql.replace("<=>", "IS NOT DISTINCT FROM").replace("`", '"')


def _properties(stamp: Stamp) -> Any:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={"userMetadata": stamp.metadata},
        app_transactions=[Transaction(stamp.app, stamp.version)],
        max_commit_retries=15,
    )


def _same(column: str, source: str | None = None) -> str:
    """SQL: equal, null to null; in brackets, since DataFusion's operator binds less tightly than AND."""
    return f"(t.`{column}` <=> s.`{source or column}`)"


def _greater(columns: list[str]) -> str:
    """SQL: the source row is greater than the target row, compared left to right, nulls lowest."""
    first, rest = columns[0], columns[1:]
    greater = f"(s.`{first}` > t.`{first}` OR (s.`{first}` IS NOT NULL AND t.`{first}` IS NULL))"
    if not rest:
        return greater
    return f"({greater} OR ({_same(first)} AND {_greater(rest)}))"
