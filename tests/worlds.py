"""Small worlds: the platform's own ingest, streams and batch over a temporary lake, fed by hand instead of by Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from batch.reconcile import Reconcile
from streaming.ingest import _Feed
from streaming.maintain import Maintain
from tables.declaration import Table
from tables.decode import RAW_SCHEMA, Decoder
from tables.lake import Lake
from tables.outcome import Outcome
from tables.registry import Registry, load
from tables.setup import Platform, ensure_domain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.settings import Settings


@dataclass
class World:
    """A domain whose log is what the test says.

    `append` is one micro-batch of ingest; `maintain` lets every table's stream take in what is there and stop, so
    that each call is a restart; `reconcile` is the batch.
    """

    spark: SparkSession
    settings: Settings
    domain: str = "flights"
    registry: Registry = field(default_factory=load)
    _ends: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lake = Lake(self.settings)
        ensure_domain(self.spark, self.lake, self.registry, self.domain)

    def append(self, records: Mapping[str, Sequence[bytes]]) -> None:
        """Ingest records by topic, all in partition 0, at the next offsets."""
        for name, values in records.items():
            if not values:
                continue
            topic = self.registry.find_topic(name)
            raw, ranges = self._raw(name, values)
            _Feed(self.spark, self.lake, topic).take(raw, ranges)

    def append_in_files(self, name: str, values: Sequence[bytes], by: str) -> None:
        """Ingest good records in one commit of several files, as Spark does, the greatest of a column first."""
        topic = self.registry.find_topic(name)
        raw, _ = self._raw(name, values)
        rows = self.spark.createDataFrame(Decoder(topic).decode(raw, None).accepted)
        files = rows.repartitionByRange(len(values), rows[by].desc())
        files.write.format("delta").mode("append").save(self.lake.uri(topic.full_name))

    def _raw(self, name: str, values: Sequence[bytes]) -> tuple[pa.Table, dict[int, tuple[int, int]]]:
        start = self._ends.get(name, 0)
        end = self._ends[name] = start + len(values)
        columns = [
            pa.array([0] * len(values), pa.int32()),
            pa.array(range(start, end), pa.int64()),
            pa.array([datetime.now(UTC)] * len(values), pa.timestamp("us", tz="UTC")),
            pa.array([b"key"] * len(values)),
            pa.array(values, pa.binary()),
        ]
        return pa.table(columns, schema=RAW_SCHEMA), {0: (start, end)}

    def maintain(self, tables: Iterable[str] = ()) -> None:
        """Run the streams of these tables, or of all, until nothing is left to read; what others read comes first."""
        wanted = {self.registry.find_table(name).full_name for name in tables}
        for tables_at_once in self._ranks():
            streams = [
                Maintain(self.spark, self.lake, self.registry, table).start(available_now=True)
                for table in tables_at_once
                if not wanted or table.full_name in wanted
            ]
            for stream in streams:
                stream.awaitTermination()

    def _ranks(self) -> list[list[Table]]:
        """Tables that read topics only, then those that read these, and so on."""
        rank: dict[str, int] = {}
        ranks: list[list[Table]] = []
        for table in self.registry.in_order(self.domain):
            below = [rank[source.full_name] for source in self.registry.upstream(table) if isinstance(source, Table)]
            rank[table.full_name] = number = max(below, default=-1) + 1
            ranks += [[] for _ in range(number + 1 - len(ranks))]
            ranks[number].append(table)
        return ranks

    def reconcile(self, tables: Iterable[str] = (), *, verify: bool = True) -> list[Outcome]:
        """Reconcile these tables, or all, inputs first."""
        wanted = {self.registry.find_table(name).full_name for name in tables}
        platform = Platform(self.spark, self.lake, self.registry)
        outcomes: list[Outcome] = []
        for table in self.registry.in_order(self.domain):
            if not wanted or table.full_name in wanted:
                outcomes += Reconcile(platform, table).run(verify=verify)
        return outcomes

    def rows(self, name: str) -> pa.Table:
        """A table as it is now."""
        return pa.table(self.lake.open(name).scan())

    def watermark_ms(self, name: str) -> int | None:
        """What the stream of the table has closed."""
        from tables.checkpoint import Checkpoint

        table = self.registry.find_table(name)
        return Checkpoint(self.settings.checkpoints / table.domain / table.name).watermark_ms()
