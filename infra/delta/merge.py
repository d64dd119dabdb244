"""MERGE of rows into a Delta table, by Spark or delta-rs, from one plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING
from uuid import uuid4
from weakref import WeakKeyDictionary

from twofold.infra.delta.compaction import after_commit
from twofold.infra.delta.datafusion_sql import span
from twofold.infra.delta.file_statistics import parquet_properties
from twofold.infra.rows.rows import without_maps
from twofold_algebra.sql.names import DATAFUSION, SPARK, Dialect

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from twofold.infra.rows.rows import Rows


_turns: WeakKeyDictionary[SparkSession, Lock] = WeakKeyDictionary()
_guard = Lock()


@dataclass(frozen=True, kw_only=True)
class Merge:
    """The clauses of a MERGE of rows `s` into a table `t`, in the SQL of the engine that runs it.

    Attributes:
        on: the condition by which rows match.
        columns: of the rows, all of which are written.
        key: the columns in which matching rows are equal.
        update, delete: conditions under which a matching row replaces or deletes the row in the table; None: never.
        insert: the condition under which a row without a match is added; None: always.
    """

    on: str
    columns: Sequence[str]
    key: Sequence[str]
    update: str | None = None
    delete: str | None = None
    insert: str | None = None

    def by_rust(self, table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
        """Runs the merge with delta-rs; makes no commit if nothing changes."""
        # Equal keys lie between the least and the greatest: files that cannot hold any stay shut.
        on = f"{self.on} AND {span(rows, self.key, 't')}"
        merger = table.merge(
            rows,
            on,
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
            post_commithook_properties=after_commit(),
            writer_properties=parquet_properties(table),
        )
        values = {DATAFUSION.name(c): DATAFUSION.name("s", c) for c in self.columns}
        if self.delete:
            merger = merger.when_matched_delete(predicate=self.delete)
        if self.update:
            merger = merger.when_matched_update(updates=values, predicate=self.update)
        merger.when_not_matched_insert(updates=values, predicate=self.insert).execute()

    def by_spark(self, uri: str, rows: DataFrame, says: Mapping[str, str]) -> None:
        """Runs the merge with Spark, unless it would change nothing.

        Args:
            says: session settings that become the commit's tag; threads that share a session take turns, since settings
                belong to the session.
        """
        spark = rows.sparkSession
        if not _differs(rows, spark.read.format("delta").load(uri), self):
            return
        view = f"merged_{uuid4().hex}"
        rows.createOrReplaceTempView(view)
        with _turn(spark):
            for setting, value in says.items():
                spark.conf.set(setting, value)
            try:
                spark.sql(self._sql(uri, view))
            finally:
                for setting in says:
                    spark.conf.unset(setting)
                spark.catalog.dropTempView(view)

    def _sql(self, uri: str, source: str) -> str:
        names = list(map(SPARK.name, self.columns))
        values = [f"s.{name}" for name in names]
        clauses = [f"MERGE INTO delta.{SPARK.name(uri)} AS t USING {source} AS s ON {self.on}"]
        if self.delete:
            clauses.append(f"WHEN MATCHED AND {self.delete} THEN DELETE")
        if self.update:
            assigned = ", ".join(f"t.{name} = {value}" for name, value in zip(names, values, strict=True))
            clauses.append(f"WHEN MATCHED AND ({self.update}) THEN UPDATE SET {assigned}")
        insert = f" AND {self.insert}" if self.insert else ""
        clauses.append(f"WHEN NOT MATCHED{insert} THEN INSERT ({', '.join(names)}) VALUES ({', '.join(values)})")
        return " ".join(clauses)


def _turn(spark: SparkSession) -> Lock:
    """Returns the lock that a thread holds while it merges in a session."""
    with _guard:
        return _turns.setdefault(spark, Lock())


def equal(by: Dialect, column: str, source: str | None = None, of: Rows | None = None) -> str:
    """Writes that two columns are equal, nulls included; in brackets, since DataFusion's operator binds too weakly.

    Args:
        of: rows with the column; if they are in Spark, which compares no maps, the entries of maps are compared.
    """
    sides = by.name("t", column), by.name("s", source or column)
    plain = of is None or by is not SPARK
    one, other = sides if plain else (without_maps(side, of, column, by) for side in sides)
    return f"({one} IS NOT DISTINCT FROM {other})"


def greater(by: Dialect, columns: Sequence[str]) -> str:
    """Writes that the source row is greater than the target row, compared left to right, nulls lowest.

    The condition is flat, since DataFusion's parser refuses deep nesting.
    """
    cases = []
    for n, column in enumerate(columns):
        source, target = by.name("s", column), by.name("t", column)
        is_greater = f"({source} > {target} OR ({source} IS NOT NULL AND {target} IS NULL))"
        cases.append(" AND ".join([*(equal(by, c) for c in columns[:n]), is_greater]))
    return f"({' OR '.join(f'({case})' for case in cases)})"


def _differs(source: DataFrame, target: DataFrame, merge: Merge) -> bool:
    """Whether a merge would change a row: Spark commits and rewrites files even if none changes."""
    from pyspark.sql import functions as F

    matched = " OR ".join(f"({condition})" for condition in (merge.update, merge.delete) if condition) or "false"
    pairs = source.alias("s").join(target.withColumn("_there", F.lit(True)).alias("t"), F.expr(merge.on), "left")
    changes = F.when(F.col("t._there"), F.expr(matched)).otherwise(F.expr(merge.insert or "true"))
    return not pairs.where(changes).isEmpty()
