"""A Delta table as target of a refresh, and the one way in which batch work publishes to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from twofold.infra.delta.datafusion_sql import span
from twofold.infra.delta.delta_writer import CHANGE, CommitTag, Writer, Written
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.duckdb_session import query
from twofold.infra.errors import QualityFailed, WriteConflict
from twofold.infra.rows.rows import are_here, count, here, in_spark
from twofold.quality.rules import Rule
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import REFRESH
from twofold.tables.refresh.row_diff import difference, matching
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from twofold.infra.rows.rows import Rows

    Changes: TypeAlias = Callable[[int], tuple[Rows, Mapping[str, object]]]
    """How a table's rows differ now from what they should be, as `PublishedTable.difference` says it, and what its
    commit says of itself, see `infra.delta.delta_writer.CommitTag`.

    It reads the target before what it is compared with, so that the latter can only be ahead: a row that a stream adds
    meanwhile is missing in both or in the target alone, and never looks superfluous. Its argument is 0 at first, and
    greater where others changed some of these rows before they could be published.
    """

_ATTEMPTS = 5
_log = logging.getLogger("twofold.refresh")


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """The table of a declaration, a topic's events, or its quarantine.

    Attributes:
        compared: columns that make a row differ; None: all that are not of the key.
        approximate: column -> its relative error, see `tables.refresh.row_diff`; None: all values are exact.
        rules: what a new row must keep, if it is asked for.
        require: refuses, by an error, to publish to the table as it is at a version; None: never.
        greatest: an insert that meets a row of its key takes its place if it is greater here; empty: never.
        statistics: columns whose least and greatest values are kept per file; of a declared table.
        file: if the rules are declared.
    """

    spark: SparkSession
    lake: Lake
    name: str
    key: Sequence[str]
    compared: Sequence[str] | None = None
    approximate: Mapping[str, float] | None = None
    rules: Sequence[Rule] = ()
    require: Callable[[DeltaTable], object] | None = None
    greatest: Sequence[str] = ()
    statistics: Sequence[str] = ()
    file: str = ""

    @classmethod
    def of_table(cls, spark: SparkSession, lake: Lake, table: Table) -> PublishedTable:
        """Returns the target for a declared table."""
        return cls(
            spark=spark,
            lake=lake,
            name=table.full_name,
            key=table.primary_key,
            approximate=table.tolerances or {},
            rules=table.checks,
            statistics=table.statistics,
            file=f"tables/{table.domain}/{table.name}.py",
        )

    @classmethod
    def find(cls, spark: SparkSession, lake: Lake, registry: Registry, name: str) -> PublishedTable:
        """Returns the target for a table, for a topic's events, or for its quarantine, by full name."""
        if name in registry.tables:
            return cls.of_table(spark, lake, registry.tables[name])
        is_quarantine = name.endswith(QUARANTINE)
        topic = registry.topics[name.removesuffix(QUARANTINE)]
        bytes_too = () if topic.covered else ("value",)  # covered by a key that is destroyed before the log is
        compared = [*bytes_too, "reasons"] if is_quarantine else list(topic.columns)
        return cls(spark=spark, lake=lake, name=name, key=(PARTITION, OFFSET), compared=compared)

    @cached_property
    def writer(self) -> Writer:
        return Writer(self.lake, self.name, self.spark)

    def newest(self) -> DeltaTable:
        """Returns the table at its newest version."""
        return self.writer.newest()

    def columns(self) -> list[str]:
        """Returns the table's current columns."""
        return [f.name for f in self.newest().schema().fields]

    def live(self) -> DataFrame:
        """Returns the current rows, pinned to the newest version."""
        return self.lake.frame(self.spark, self.name, int(self.newest().version()))

    def rows_of(self, keys: Rows) -> Rows:
        """Returns the current rows whose key is among these.

        Args:
            keys: the columns of the key, among others.
        """
        if not are_here(keys):
            return matching(self.live(), keys, self.key, "SEMI")
        keys, newest = keys.select(list(self.key)), self.newest()
        schema = pa.schema(newest.schema())
        # Read as a stream, and only from files that can hold one of the keys: the table may not fit into memory.
        scanned = newest.scan(columns=schema.names, predicate=span(keys, self.key))
        rows = pa.RecordBatchReader.from_stream(scanned).cast(schema)
        same = " AND ".join(f"rows.{c} IS NOT DISTINCT FROM keys.{c}" for c in map(DUCKDB.name, self.key))
        return query(f"SELECT rows.* FROM rows SEMI JOIN keys ON {same}", rows=rows, keys=keys).cast(schema)

    def difference(self, should: Rows, live: Rows) -> Rows:
        """Computes the rows that are missing, extra or changed in `live`, as `tables.refresh.row_diff` does.

        Args:
            live: rows of the target, or of those of its columns that `should` has too; if `should` is.
        """
        return difference(should, live, self.key, self.compared, self.approximate)

    def moved(self, changes: Rows) -> Rows:
        """Turns each insert that meets a row of its key into an update of that row.

        Such a row stood outside of the scopes when it was computed last, and has moved into them since.
        """
        columns = self.columns()
        if not are_here(changes):
            inserts = changes.where(f"{CHANGE} = 'insert'").select(*columns)
            others = changes.where(f"{CHANGE} <> 'insert'")
            return others.unionByName(self.difference(inserts, self.rows_of(inserts)))
        is_insert = pc.equal(changes[CHANGE], "insert")
        inserts = changes.filter(is_insert).select(columns)
        changed = self.difference(inserts, here(self.rows_of(inserts)).select(columns).cast(inserts.schema))
        return pa.concat_tables([changes.filter(pc.invert(is_insert)), changed.select(changes.column_names)])

    def publish(self, changes_of: Changes, *, check: bool, as_shown: bool = False) -> Written:
        """Publishes the differences in one commit; makes none if there are none.

        Rewrites that overlap in time are fenced by the transaction id `refresh`: the slower one finds that the number
        it read has been used, and computes again. A row that anybody else changed meanwhile is left alone and looked at
        again.

        Args:
            check: refuse rows that break the rules.
            as_shown: the changes are the same each time: rows that others changed meanwhile are left alone for good.

        Raises:
            QualityFailed: names the rules and a row that breaks them; nothing was published.
            WriteConflict: others changed the same rows, five times in a row.
        """
        total = Written()
        for attempt in range(_ATTEMPTS):
            number = self._number()
            changes, info = changes_of(attempt)
            changed = count(changes)
            if changed == 0:
                return total
            if check:
                self.require_good(changes)
            stamp = CommitTag(app=REFRESH, version=number, info=info)
            written = self.writer.apply(changes, self.key, stamp, greatest=self.greatest)
            total += written
            if written.changed >= changed or (self.greatest and written.is_nothing):
                return total  # what is left are lesser rows than those that stand
            if as_shown and not written.skipped:
                return total
            _log.info("retry table=%s wanted=%d changed=%d", self.name, changed, written.changed)
        raise WriteConflict(
            f"{self.name}: other writers changed the rows of this run {_ATTEMPTS} times in a row.",
            hint="Run it again when the table is quieter.",
        )

    def replace(self, rows: DataFrame, info: Mapping[str, object], *, check: bool = True) -> Written:
        """Overwrites the table's rows and columns with these, in one commit.

        Args:
            check: refuse rows that break the rules.

        Raises:
            QualityFailed: a row breaks the rules; nothing was published.
        """
        from pyspark.sql import functions as F

        number = self._number()
        if check:
            self.require_good(rows.withColumn(CHANGE, F.lit("insert")))
        self.lake.keep_statistics(self.name, [c for c in self.statistics if c in self.columns()])
        written = self.writer.replace(rows, CommitTag(app=REFRESH, version=number, info=info))
        self.lake.keep_statistics(self.name, self.statistics)
        return written

    def _number(self) -> int:
        """Returns the number of the next commit, which follows the version that was checked here."""
        table = self.newest()
        if self.require is not None:
            self.require(table)
        return int(table.transaction_version(REFRESH) or 0) + 1

    def require_good(self, changes: Rows) -> None:
        """Refuses a difference whose new rows break the rules.

        Raises:
            QualityFailed: names the rules and a row that breaks them.
        """
        from twofold.quality.row_checks import naming, split
        from twofold.quality.rules import ROW_RULES

        rules = [rule for rule in self.rules if rule.kind in ROW_RULES]
        if not rules:
            return
        with naming(rules):
            bad = split(in_spark(self.spark, changes).where(f"{CHANGE} <> 'delete'"), rules)[1].limit(1).collect()
        if bad:
            row = bad[0].asDict()
            raise QualityFailed(
                f"{self.name}: the recomputed row { ({c: row[c] for c in self.key}) } breaks "
                f"{', '.join(row['_reasons'])}; nothing was published.",
                hint=f"Correct the function or the rules in {self.file}, then run it again.",
            )
