"""Small worlds: the platform's own ingest, streams and batch over a temporary lake, fed by hand instead of by Kafka."""

from __future__ import annotations

import atexit
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.offset_selection import OffsetSelection
from twofold.batch.reconcile import Reconcile
from twofold.infra.delta.lake import Lake
from twofold.infra.offset_ranges import Ranges
from twofold.streaming.driver import table_query
from twofold.streaming.ingest.topic_writer import TopicWriter
from twofold.tables.declare.code_fingerprint import fingerprint
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.events.record_decoder import Decoder, raw_columns
from twofold.tables.refresh.open_platform import Platform, ensure_domain
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold_archive.format.record_columns import HEADERS_TYPE
from twofold_archive.format.record_columns import schema as raw_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from twofold.infra.project.settings import Settings

_empty_lakes: dict[str, Path] = {}


class Sent(Protocol):
    """A record as it is sent, by the name of its topic."""

    @property
    def topic(self) -> str: ...

    @property
    def value(self) -> bytes: ...


class Keyed(NamedTuple):
    """A record with a key of its own; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass
class World:
    """A domain whose log is what the test says.

    `append` is one micro-batch of ingest; `maintain` lets the streams of tables take in what is there and stop, so
    that each call is a restart; `reconcile` is the batch. Both take the tables that the test looks at; `with_inputs`
    adds what they read, and a claim about the whole domain says `all_tables`. `starts`, `ranges` and `read` are what
    `batch.log_reader.Log` has.

    Attributes:
        log: the raw records of each topic that has some, as `raw_columns` names them, in the order of their offsets.
    """

    spark: SparkSession
    settings: Settings
    domain: str
    registry: Registry = field(default_factory=load)
    log: dict[str, pa.Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lake = Lake(self.settings)
        if not Path(self.settings.lake_uri).exists():
            shutil.copytree(self._empty_lake(), self.settings.lake_uri)
        ensure_domain(self.spark, self.lake, self.registry, self.domain)

    def _empty_lake(self) -> Path:
        """Returns the domain's tables without rows; made once in this process for all worlds of these declarations."""
        registry = self.registry
        topics = [f"{topic.full_name} {topic}" for topic in registry.domain_topics(self.domain)]
        tables = [f"{table.full_name} {fingerprint(table)}" for table in registry.in_order(self.domain)]
        declared = "\n".join([*topics, *tables])
        if declared not in _empty_lakes:
            home = Path(mkdtemp(prefix="twofold-empty-"))
            atexit.register(shutil.rmtree, home, ignore_errors=True)
            lake = Lake(replace(self.settings, home=home, lake=""))
            faults = ensure_domain(self.spark, lake, registry, self.domain)
            assert not faults, faults
            _empty_lakes[declared] = Path(lake.settings.lake_uri)
        return _empty_lakes[declared]

    def copied_to(self, settings: Settings) -> World:
        """Copies the world to another home, which may be changed while this one stays as it is."""
        shutil.copytree(self.settings.home, settings.home)
        return replace(self, settings=settings, log=dict(self.log))

    def append(self, records: Mapping[str, Sequence[bytes | Keyed]], headers: Sequence[tuple[str, bytes]] = ()) -> None:
        """Ingests records by topic, all in partition 0, at the next offsets.

        Args:
            headers: of each of these records, where its topic reads headers.
        """
        for name, values in records.items():
            if not values:
                continue
            topic = self.registry.find_topic(name)
            raw, ranges = self.raw(name, values, headers)
            TopicWriter(self.spark, self.lake, topic).take(raw, ranges)

    def feed(self, messages: Sequence[Sent], parts: int) -> Iterator[int]:
        """Ingests messages in so many micro-batches of equal size; yields the number of each once it is in."""
        size = -(-len(messages) // parts)
        for number in range(parts):
            records: dict[str, list[bytes]] = defaultdict(list)
            for message in messages[number * size : (number + 1) * size]:
                records[message.topic].append(message.value)
            self.append(records)
            yield number

    def append_in_files(self, name: str, values: Sequence[bytes], by: str) -> None:
        """Ingests good records in one commit of several files, as Spark does, the greatest of a column first."""
        topic = self.registry.find_topic(name)
        raw, _ = self.raw(name, values)
        rows = self.spark.createDataFrame(Decoder(topic).decode(raw, None).accepted)
        files = rows.repartitionByRange(len(values), rows[by].desc())
        files.write.format("delta").mode("append").save(self.lake.uri(topic.full_name))

    def raw(
        self, name: str, values: Sequence[bytes | Keyed], headers: Sequence[tuple[str, bytes]] = ()
    ) -> tuple[pa.Table, dict[int, tuple[int, int]]]:
        """Adds records to the log, all in partition 0; as ingest gets them, and their offsets."""
        topic = self.registry.find_topic(name)
        name, schema = topic.full_name, raw_schema(raw_columns(topic))
        before = self.log.get(name, schema.empty_table())
        start, end = len(before), len(before) + len(values)
        keyed = [value if isinstance(value, Keyed) else Keyed(b"key", value) for value in values]
        columns = [
            pa.array([0] * len(values), pa.int32()),
            pa.array(range(start, end), pa.int64()),
            pa.array([datetime.now(UTC)] * len(values), pa.timestamp("us", tz="UTC")),
            pa.array([record.key for record in keyed], pa.binary()),
            pa.array([record.value for record in keyed], pa.binary()),
        ]
        if topic.reads_headers:
            pairs = [{"key": header, "value": value} for header, value in headers] or None
            columns.append(pa.array([pairs] * len(values), HEADERS_TYPE))
        raw = pa.table(columns, schema=schema)
        self.log[name] = pa.concat_tables([before, raw])
        return raw, {0: (start, end)}

    def starts(self, topic: str) -> dict[int, int]:
        """Returns where the log of a topic begins."""
        return {0: 0}

    def ranges(self, topic: Topic, span: OffsetSelection, now: datetime) -> dict[int, tuple[int, int]]:
        """Returns of each partition what was ingested; no other span is known here."""
        assert span.is_whole
        ends = read_ingested_offsets(self.lake, topic).ends
        return {p: (start, ends[p]) for p, start in self.starts(topic.full_name).items() if start < ends.get(p, 0)}

    def read(self, topic: Topic, ranges: Ranges) -> DataFrame:
        """Returns raw records as an archive would give them again."""
        [(start, end)] = ranges.values()
        rows = self.log[topic.full_name]
        offsets = rows["offset"]
        return self.spark.createDataFrame(rows.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))))

    def maintain(self, tables: Iterable[str]) -> None:
        """Runs the streams of these tables until nothing is left to read; what others read comes first."""
        wanted = self._named(tables)
        for tables_at_once in self._ranks():
            streams = [
                table_query(Platform(self.spark, self.lake, self.registry), table).start(available_now=True)
                for table in tables_at_once
                if table.full_name in wanted
            ]
            try:
                for stream in streams:
                    stream.awaitTermination()
            finally:
                for stream in streams:
                    stream.stop()

    @property
    def all_tables(self) -> list[str]:
        """Every table of the domain, inputs first."""
        return [table.full_name for table in self.registry.in_order(self.domain)]

    def _named(self, tables: Iterable[str]) -> set[str]:
        """Returns full names; none is a mistake of the test, which would wait for nothing, or for too much."""
        named = {self.registry.find_table(name).full_name for name in tables}
        if not named:
            raise ValueError("No table is named: expected those that the test looks at, or world.all_tables.")
        return named

    def with_inputs(self, tables: Iterable[str]) -> list[str]:
        """Returns these tables, and all that they read, directly or through others."""
        reached: dict[str, Table] = {}
        left = [self.registry.find_table(name) for name in tables]
        while left:
            table = left.pop()
            reached[table.full_name] = table
            left += [source for source in self.registry.upstream(table) if isinstance(source, Table)]
        return list(reached)

    def topics_of(self, tables: Iterable[str]) -> list[Topic]:
        """Returns the topics that these tables themselves read."""
        read = (topic for name in tables for topic in self.registry.topics_of(self.registry.find_table(name)))
        return list({topic.full_name: topic for topic in read}.values())

    def _ranks(self) -> list[list[Table]]:
        """Returns tables that read topics only, then those that read these, and so on."""
        rank: dict[str, int] = {}
        ranks: list[list[Table]] = []
        for table in self.registry.in_order(self.domain):
            below = [rank[source.full_name] for source in self.registry.upstream(table) if isinstance(source, Table)]
            rank[table.full_name] = number = max(below, default=-1) + 1
            ranks += [[] for _ in range(number + 1 - len(ranks))]
            ranks[number].append(table)
        return ranks

    def reconcile(self, tables: Iterable[str], *, verify: bool = False) -> list[RunResult]:
        """Reconciles these tables, inputs first.

        Args:
            verify: also recompute every closed row; without it no outcome has unexplained rows.
        """
        wanted = self._named(tables)
        platform = Platform(self.spark, self.lake, self.registry)
        outcomes: list[RunResult] = []
        for table in self.registry.in_order(self.domain):
            if table.full_name in wanted:
                outcomes += Reconcile(platform, table).run(verify=verify)
        return outcomes

    def rows(self, name: str) -> pa.Table:
        """Reads a table as it is now."""
        return pa.table(self.lake.open(name).scan())

    def watermark_ms(self, name: str) -> int | None:
        """Returns what the stream of the table has closed, epoch milliseconds."""
        return Checkpoint.of_table(self.settings, self.registry.find_table(name)).watermark_ms()
