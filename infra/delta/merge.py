"""MERGE of rows into a Delta table, by Spark or delta-rs, from one plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING
from uuid import uuid4
from weakref import WeakKeyDictionary

from infra.delta.compaction import after_commit
from infra.delta.datafusion_sql import span
from infra.delta.file_statistics import parquet_properties
from infra.rows.rows import without_maps
from infra.sql.names import DATAFUSION, SPARK, Dialect

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from infra.rows.rows import Rows


_turns: WeakKeyDictionary[SparkSession, Lock] = WeakKeyDictionary()
_guard = Lock()


@dataclass(frozen=True, kw_only=True)
class Merge:
    """The clauses of a MERGE of rows `s` into a table `t`, in the SQL of the engine that does it.

    Attributes:
        on: rows that meet.
        columns: of the rows, all of which are written.
        key: the columns in which rows that meet are equal.
        update, delete: which rows that meet a row replace it, and remove it; None: none.
        insert: which rows that meet none are added; None: all.
    """

    on: str
    columns: Sequence[str]
    key: Sequence[str]
    update: str | None = None
    delete: str | None = None
    insert: str | None = None

    def by_rust(self, table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
        """Let delta-rs do it; one that changes nothing makes no commit."""
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
        """Let Spark do it, unless it would change nothing.

        Args:
            says: settings of the rows' session that make the commit say what it should; threads that share a session
                take turns, since it is of the session that these are.
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
    """The lock that a thread holds while it merges in a session."""
    with _guard:
        return _turns.setdefault(spark, Lock())


def equal(by: Dialect, column: str, source: str | None = None, of: Rows | None = None) -> str:
    """Writes that two columns are equal, null to null; in brackets, since DataFusion binds it less tightly than AND.

    Args:
        of: rows with the column; of those in Spark, which compares no maps, the maps' entries are compared.
    """
    sides = by.name("t", column), by.name("s", source or column)
    plain = of is None or by is not SPARK
    one, other = sides if plain else (without_maps(side, of, column, by) for side in sides)
    return f"({one} IS NOT DISTINCT FROM {other})"


def greater(by: Dialect, columns: Sequence[str]) -> str:
    """Writes that the source row is greater than the target row, compared left to right, nulls lowest.

    Flat, since DataFusion's parser takes no deep nesting.
    """
    cases = []
    for n, column in enumerate(columns):
        source, target = by.name("s", column), by.name("t", column)
        is_greater = f"({source} > {target} OR ({source} IS NOT NULL AND {target} IS NULL))"
        cases.append(" AND ".join([*(equal(by, c) for c in columns[:n]), is_greater]))
    return f"({' OR '.join(f'({case})' for case in cases)})"


def _differs(source: DataFrame, target: DataFrame, merge: Merge) -> bool:
    """Whether a merge would change a row: Spark commits one that changes none, and rewrites files for it."""
    from pyspark.sql import functions as F

    matched = " OR ".join(f"({condition})" for condition in (merge.update, merge.delete) if condition) or "false"
    pairs = source.alias("s").join(target.withColumn("_there", F.lit(True)).alias("t"), F.expr(merge.on), "left")
    changes = F.when(F.col("t._there"), F.expr(matched)).otherwise(F.expr(merge.insert or "true"))
    return not pairs.where(changes).isEmpty()
