"""A log of seven records: the archive has the first five, the broker the last five."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from packages.twofold_archive.tests.archived_logs import NOON_MS, TOPIC_ID, Batch, Record, stored
from tests.plant import plant, reading
from twofold.batch.ledgers.run_result import RUNS
from twofold.batch.log_reader import Log
from twofold.infra.archive.platform_archive import ArchiveFiles, PlatformArchive
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.lake import Lake
from twofold.infra.kafka.topic_admin import PartitionOffsets
from twofold.infra.offset_ranges import Ranges
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World
from twofold_archive.format.record_columns import schema
from twofold_archive.format.segment_store import Store
from twofold_archive.segment_manifest import archived

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "plant.readings"
ARCHIVED, AT_HAND = (0, 5), (2, 7)
APPENDED_MS = NOON_MS + 86_400_000  # after all that the readings tell of
VALUES = [
    [reading("a", 0, 1), reading("a", 1, None), reading("b", 2, 2), b"{"],
    [reading("a", at, 1) for at in (3, 4, 5)],
]


def ingested(spark: SparkSession, folder: Path) -> World:
    """A plant whose stream has ingested all seven records, in two micro-batches."""
    world = World(spark, Settings(home=folder / "home", shuffle_partitions=1), "plant", plant(folder / "declared"))
    for values in VALUES:
        world.append({"readings": values})
    return world


@dataclass
class TwoCopies:
    """Offsets 0 to 6 of one partition, of which 3 is broken, ingested; what each copy has can be changed.

    Attributes:
        served: what the broker gives at each offset that it has; a record is there as often as it is listed.
        latest: where the broker's log ends.
        markers: offsets that transactions fill.
        segments: offsets of the archived segments.
    """

    world: World
    root: Path
    records: list[Record]
    served: list[tuple[int, Record]]
    latest: int = AT_HAND[1]
    markers: Sequence[tuple[int, int]] = ()
    segments: Sequence[tuple[int, int]] = (ARCHIVED,)
    fetched: list[Ranges] = field(default_factory=list)

    @classmethod
    def of_world(cls, world: World, root: Path, patch: pytest.MonkeyPatch) -> TwoCopies:
        """The copies of what such a world has `ingested`, read wherever the log is until the patch is undone."""
        values = [value for several in VALUES for value in several]
        records = [Record(key=b"key", value=value, timestamp=APPENDED_MS + at) for at, value in enumerate(values)]
        copies = cls(world, root, records, [(at, record) for at, record in enumerate(records) if at >= AT_HAND[0]])
        patch.setattr("twofold.infra.archive.archive_catalog.open_archive", copies._archive)
        for module in ("twofold.batch.log_reader", "twofold.infra.archive.log_union"):
            patch.setattr(f"{module}.offsets", copies.offsets)
        patch.setattr("twofold.infra.archive.log_union.broker_frame", copies._broker)
        patch.setattr("twofold.batch.log_reader.in_transactions", lambda *_: {0: list(copies.markers)})
        return copies

    @property
    def platform(self) -> Platform:
        return Platform(self.world.spark, self.world.lake, self.world.registry)

    @property
    def log(self) -> Log:
        return Log(self.platform, [TOPIC])

    def change_archived(self, offset: int, **changes: Any) -> None:
        """Another record in the archive, in a batch whose checksum is right."""
        self.records[offset] = replace(self.records[offset], **changes)

    def _archive(self, *_: object) -> PlatformArchive:
        segments = []
        for start, end in self.segments:
            batch = Batch(base=start, records=self.records[start:end])
            made = stored([batch.encode()], identity=UUID(int=1 + start))
            made = replace(made, segment=replace(made.segment, topic=TOPIC))
            made.write(self.root)
            segments.append(made.segment)
        return PlatformArchive(Store(ArchiveFiles(str(self.root))), archived(segments, {TOPIC: TOPIC_ID}))

    def offsets(self, *_: object) -> dict[str, dict[int, PartitionOffsets]]:
        """What the broker says of them."""
        bounds = PartitionOffsets(earliest=0, earliest_local=AT_HAND[0], latest=self.latest, tiered=ARCHIVED[1])
        return {TOPIC: {0: bounds}}

    def _broker(self, _spark: object, _settings: object, _topic: str, ranges: Any, columns: Sequence[str]) -> DataFrame:
        [(start, end)] = ranges.values()
        self.fetched.append(ranges)
        rows = [
            {
                "key": record.key,
                "value": record.value,
                "topic": TOPIC,
                "partition": 0,
                "offset": offset,
                "timestamp": datetime.fromtimestamp(record.timestamp / 1000, UTC),
                "timestampType": 0,
                "headers": [{"key": name, "value": content} for name, content in record.headers] or None,
            }
            for offset, record in self.served
            if start <= offset < end
        ]
        return self.world.spark.createDataFrame(pa.Table.from_pylist(rows, schema(columns)))


def recorded(lake: Lake) -> list[tuple[object, ...]]:
    """What the ledger says of topics: name, comparison, records, faults and shares, oldest first."""
    if not lake.exists(RUNS):
        return []
    columns = ["table", "cause", "rows", "unexplained", "turns"]
    runs = select(lake.open(RUNS), [*columns, "recorded_at"], "cause LIKE 'audit_%'").sort_by("recorded_at")
    return [tuple(run[name] for name in columns) for run in runs.to_pylist()]
