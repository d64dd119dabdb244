"""What the broker gave up is taken from its archived segments; what is in neither becomes a gap, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, cast
from uuid import UUID

import pyarrow as pa
import pytest

from packages.twofold_archive.tests.archived_logs import Batch, Record, Stored, stored
from tests.streaming.ingest.small_log import SmallLog
from tests.tables.declared import a_table, a_topic
from twofold.batch.audit.table_audit import audit_topics
from twofold.infra.archive.platform_archive import ArchiveFiles, PlatformArchive
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.errors import CorruptSegment, LogGap
from twofold.infra.kafka.topic_admin import PartitionOffsets
from twofold.streaming.ingest.catch_up import CatchUp, CatchUpPlan
from twofold.streaming.ingest.topic_writer import TopicWriter
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.events import lost_offsets
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA, events_schema
from twofold.tables.refresh.open_platform import Platform
from twofold_archive.format.segment import Segment
from twofold_archive.format.segment_store import Store
from twofold_archive.segment_manifest import archived

TOPIC = a_topic()
NAME = TOPIC.full_name
LOG = UUID(int=7)


def value(offset: int) -> bytes:
    """A good record; of offsets that end with 7 a bad one."""
    reading = {"sensor": "a", "read_at": f"2012-12-31T12:{offset // 60:02}:{offset % 60:02}Z", "value": 1.0, "count": 1}
    return b"no JSON" if offset % 10 == 7 else json.dumps(reading).encode()


@dataclass
class Plant:
    """One topic of two partitions, whose broker and archive have what the test says."""

    lake: Lake
    root: Path
    broker: dict[int, PartitionOffsets] = field(default_factory=dict)
    log: str = str(LOG)
    segments: list[Segment] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        lost_offsets.ensure(self.lake)
        self.lake.ensure(NAME, events_schema(TOPIC), statistics=[PARTITION, OFFSET])
        self.lake.ensure(NAME + QUARANTINE, QUARANTINE_SCHEMA, statistics=[PARTITION, OFFSET])

    def reaches(self, partition: int, earliest: int, local: int, latest: int) -> None:
        self.broker[partition] = PartitionOffsets(
            earliest=earliest, earliest_local=local, latest=latest, tiered=local or None
        )

    def archive(self, partition: int, start: int, end: int) -> Stored:
        records = [Record(key=b"k", value=value(offset)) for offset in range(start, end)]
        batch = Batch(base=start, records=records).encode()
        made = stored([batch], partition=partition, identity=UUID(int=1_000 * partition + start + 1))
        made = replace(made, segment=replace(made.segment, topic=NAME, topic_id=LOG))
        made.write(self.root)
        self.segments.append(made.segment)
        return made

    def feed(self) -> TopicWriter:
        return TopicWriter(cast(Any, None), self.lake, TOPIC)

    def fill(self, checkpointed: dict[int, int] | None = None) -> CatchUpPlan:
        """What a driver that has just started does; gives what was planned."""
        fill = CatchUp(cast(Any, None), self.lake, {NAME: self.feed()}, lambda records, _: self.chunks.append(records))
        plan = fill.plan({NAME: checkpointed} if checkpointed is not None else {})
        fill.run(plan)
        return plan

    def opened(self, *_: object) -> PlatformArchive:
        return PlatformArchive(Store(ArchiveFiles(str(self.root))), archived(self.segments, {NAME: LOG}))

    def offsets(self, partition: int, table: str = NAME) -> list[int]:
        rows = pa.table(self.lake.open(table).scan()).to_pylist()
        return sorted(row[OFFSET] for row in rows if row[PARTITION] == partition)

    def both(self, partition: int) -> list[int]:
        return sorted(self.offsets(partition) + self.offsets(partition, NAME + QUARANTINE))

    def lost(self) -> list[tuple[int, int, int]]:
        return [(gap.partition, gap.start, gap.end) for gap in lost_offsets.gaps(self.lake, NAME)]

    def causes(self) -> list[str]:
        commits = self.lake.commits(NAME, 0, self.lake.version(NAME))
        return [commit.info["cause"] for commit in commits]


@pytest.fixture
def plant(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    plant = Plant(lake, tmp_path / "archive")
    monkeypatch.setattr("twofold.streaming.ingest.catch_up.offsets", lambda *_: {NAME: plant.broker})
    monkeypatch.setattr("twofold.streaming.ingest.catch_up.topic_ids", lambda *_: {NAME: plant.log})
    monkeypatch.setattr("twofold.streaming.ingest.catch_up.open_archive", plant.opened)
    return plant


def ingest(plant: Plant, end: int) -> None:
    """Take in what both partitions have up to an offset, from the archive."""
    for partition in (0, 1):
        plant.archive(partition, 0, end)
        plant.reaches(partition, 0, end, 1_000)
    plant.fill()


def test_a_stream_that_lacks_nothing_is_not_kept(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.reaches(0, 0, 0, 20)
    monkeypatch.delattr("twofold.streaming.ingest.catch_up.open_archive")  # is not even asked
    assert plant.fill() == CatchUpPlan(goes_on={}, legs={}, is_overtaken=False)
    assert plant.fill({0: 10}) == CatchUpPlan(goes_on={NAME: {0: 10}}, legs={}, is_overtaken=False)


def test_what_only_the_archive_has_is_taken_from_its_segments(plant: Plant) -> None:
    ingest(plant, 20)
    for partition, end in ((0, 50), (1, 35)):
        plant.archive(partition, 20, end)
        plant.reaches(partition, 0, end, 1_000)
    plan = plant.fill({0: 20, 1: 20})
    assert [plant.both(partition) for partition in (0, 1)] == [list(range(50)), list(range(35))]
    assert plant.offsets(0, NAME + QUARANTINE) == [7, 17, 27, 37, 47]
    assert plan.goes_on == {NAME: {0: 50, 1: 35}}
    assert plan.is_overtaken
    assert plant.lost() == []


def test_a_hole_is_filled_in_chunks_in_which_partitions_go_on_together(plant: Plant) -> None:
    plant.lake = Lake(replace(plant.lake.settings, max_offsets=10))
    ingest(plant, 20)
    assert plant.chunks == [10, 10, 10, 10]
    starts = [commit.info["starts"] for commit in plant.lake.commits(NAME, 0, plant.lake.version(NAME))]
    assert starts == [{"0": n, "1": n} for n in (0, 5, 10, 15)]
    assert plant.both(0) == plant.both(1) == list(range(20))


def test_segments_of_large_records_are_read_by_workers(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("twofold.infra.rows.sizes.RECORD_BYTES", 100)
    monkeypatch.setattr(CatchUp, "_archived_frame", lambda *_: "frame")
    monkeypatch.setattr(TopicWriter, "take_frame", lambda _, *given_: given.append(given_))
    ingest(plant, 20)
    assert given == [("frame", {0: (0, 20), 1: (0, 20)})]


def test_a_fill_that_was_killed_is_made_again_without_repeating_a_record(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant.lake = Lake(replace(plant.lake.settings, max_offsets=10))
    takes: Iterator[int] = iter(range(100))
    take = TopicWriter.take

    def killed(feed: TopicWriter, raw: pa.Table, ranges: Any) -> None:
        if next(takes) == 2:
            raise KeyboardInterrupt
        take(feed, raw, ranges)

    with monkeypatch.context() as patched:
        patched.setattr(TopicWriter, "take", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(plant, 20)
    assert plant.both(0) == list(range(10))
    plan = plant.fill()
    assert plan.legs[NAME][0][0].start == 5  # the newest micro-batch once more: its quarantine may be missing
    assert plant.both(0) == plant.both(1) == list(range(20))


def test_what_is_lost_becomes_a_gap_and_the_stream_goes_on_behind_it(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("twofold.streaming.ingest.catch_up._log.error", lambda text, *facts: told.append(text % facts))
    ingest(plant, 20)
    plant.archive(0, 30, 40)
    plant.reaches(0, 50, 50, 60)
    plan = plant.fill({0: 20, 1: 20})
    assert plant.both(0) == [*range(20), *range(30, 40)]
    assert plant.lost() == [(0, 20, 30), (0, 40, 50)]
    assert [gap.why for gap in lost_offsets.gaps(plant.lake)] == [
        "the broker's log begins at 50, and the archive has [0, 20), [30, 40) of the partition"
    ] * 2
    assert plan.goes_on == {NAME: {0: 50, 1: 20}}
    assert read_ingested_offsets(plant.lake, TOPIC).ends == {0: 50, 1: 20}
    assert plant.causes()[-3:] == ["gap", "ingest", "gap"]
    assert [text.split(" why=")[0] for text in told] == [
        "records lost topic=plant.readings partition=0 start=20 end=30",
        "records lost topic=plant.readings partition=0 start=40 end=50",
    ]


def test_an_audit_fails_for_a_gap_until_it_is_acknowledged(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.infra.kafka.topic_admin.offsets", lambda *_: {NAME: plant.broker})
    hours = a_table()
    registry = Registry({NAME: TOPIC}, {hours.full_name: hours})

    def no_session() -> NoReturn:
        raise AssertionError("nothing is missing, so that nobody looks into the log")

    def faults() -> list[str]:
        [audited] = audit_topics(Platform(no_session, plant.lake, registry), [hours])
        assert sum(part.missing for part in audited.partitions) == 0
        return [fault.split(" are lost")[0] for fault in audited.faults]

    ingest(plant, 20)
    assert faults() == []
    plant.reaches(0, 30, 30, 60)
    plant.fill()
    assert faults() == ["plant.readings, partition 0: offsets [20, 30)"]
    lost_offsets.acknowledge(plant.lake, NAME, "known")
    assert faults() == []


@pytest.mark.parametrize("stage", ["record", "skip"])
def test_a_driver_killed_at_a_gap_neither_loses_nor_repeats_its_row(
    plant: Plant, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(plant, 20)
    plant.reaches(0, 30, 30, 60)
    versions = plant.lake.version(NAME), plant.lake.version(lost_offsets.GAPS)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(
            *(
                ("twofold.streaming.ingest.catch_up.record", killed)
                if stage == "record"
                else (TopicWriter, "skip", killed)
            )
        )
        with pytest.raises(KeyboardInterrupt):
            plant.fill()
    between = 0 if stage == "record" else 1
    assert (plant.lake.version(NAME), plant.lake.version(lost_offsets.GAPS)) == (versions[0], versions[1] + between)

    for _ in range(2):
        plant.fill()
        assert plant.lost() == [(0, 20, 30)]
        assert plant.causes().count("gap") == 1
        assert read_ingested_offsets(plant.lake, TOPIC).ends[0] == 30


def test_a_log_that_goes_on_losing_after_a_kill_is_a_second_gap(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(plant, 20)
    plant.reaches(0, 30, 30, 60)
    with monkeypatch.context() as patched:
        patched.setattr(TopicWriter, "skip", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            plant.fill()
    plant.reaches(0, 40, 40, 60)
    plant.fill()
    assert plant.lost() == [(0, 20, 30), (0, 30, 40)]
    assert read_ingested_offsets(plant.lake, TOPIC).ends[0] == 40


def test_a_table_without_records_begins_where_the_log_does(plant: Plant) -> None:
    plant.archive(0, 10, 20)
    plant.reaches(0, 20, 20, 60)
    plant.reaches(1, 30, 30, 60)
    assert plant.fill().goes_on == {NAME: {0: 20, 1: 30}}
    assert plant.both(0) == list(range(10, 20))
    assert plant.lost() == []


def test_what_was_waited_for_and_vanished_first_is_a_gap(plant: Plant) -> None:
    plant.reaches(0, 5, 5, 60)
    plant.fill({0: 0})
    assert plant.lost() == [(0, 0, 5)]


def test_a_checkpoint_that_was_overtaken_is_not_used(plant: Plant) -> None:
    plant.lake = Lake(replace(plant.lake.settings, max_offsets=20))
    ingest(plant, 20)
    assert plant.fill({0: 20, 1: 20}) == CatchUpPlan(goes_on={NAME: {0: 20, 1: 20}}, legs={}, is_overtaken=False)
    assert plant.fill({0: 5, 1: 20}).is_overtaken
    plant.reaches(0, 0, 10, 1_000)
    assert plant.fill({0: 5, 1: 20}) == CatchUpPlan(goes_on={NAME: {0: 10, 1: 20}}, legs={}, is_overtaken=True)


def test_a_checkpoint_of_other_partitions_is_not_used(plant: Plant) -> None:
    ingest(plant, 20)
    for partition in (0, 1):
        plant.reaches(partition, 0, 0, 1_000)
    both = {NAME: {0: 20, 1: 20}}
    assert not plant.fill({0: 20, 1: 20}).is_overtaken
    for checkpointed, goes_on in [
        ({NAME: {0: 20}}, {NAME: {0: 20, 1: 0}}),
        ({NAME: {0: 20, 1: 20, 2: 0}}, both),
        ({**both, "plant.gone": {0: 7}}, both),
    ]:
        fill = CatchUp(cast(Any, None), plant.lake, {NAME: plant.feed()}, lambda *_: None)
        assert fill.plan(checkpointed) == CatchUpPlan(goes_on=goes_on, legs={}, is_overtaken=True), checkpointed


def test_a_partition_that_begins_above_0_gets_no_older_checkpoint(plant: Plant) -> None:
    plant.reaches(0, 0, 0, 20)
    assert not plant.fill({0: 0}).is_overtaken
    plant.reaches(1, 5, 5, 20)
    assert plant.fill({0: 0}) == CatchUpPlan(goes_on={NAME: {0: 0, 1: 5}}, legs={}, is_overtaken=True)
    assert plant.lost() == []


def test_what_another_driver_ingested_before_its_deletion_is_no_gap(plant: Plant) -> None:
    plant.reaches(0, 5, 5, 60)
    fill = CatchUp(cast(Any, None), plant.lake, {NAME: plant.feed()}, lambda *_: None)
    plan = fill.plan({NAME: {0: 0}})
    plant.feed().take(SmallLog(plant.lake, TOPIC, {0: [value(n) for n in range(3)]}).raw({0: (0, 3)}), {0: (0, 3)})
    fill.run(plan)
    assert plant.lost() == [(0, 3, 5)]
    assert read_ingested_offsets(plant.lake, TOPIC).ends == {0: 5}


def test_a_topic_that_was_created_again_is_refused(plant: Plant) -> None:
    ingest(plant, 20)
    plant.log = str(UUID(int=8))
    plant.reaches(0, 0, 0, 30)
    with pytest.raises(LogGap, match=r"offsets up to .* were ingested, .* another one of the same name") as refused:
        plant.fill()
    assert "deleted and created again" in str(refused.value.hint)


def test_a_log_that_ends_before_what_was_ingested_is_refused(plant: Plant) -> None:
    ingest(plant, 20)
    plant.reaches(1, 0, 0, 19)
    with pytest.raises(LogGap, match=r"offsets up to .* were ingested, .* its log ends at 19: partition 1"):
        plant.fill()
    del plant.broker[1]
    with pytest.raises(LogGap, match="it has no such partition"):
        plant.fill()
    assert plant.lost() == []


def test_a_segment_that_is_listed_and_missing_is_no_gap(plant: Plant) -> None:
    ingest(plant, 20)
    made = plant.archive(0, 20, 30)
    plant.reaches(0, 30, 30, 60)
    for path in plant.root.rglob(f"*{made.segment.start:020d}*.log"):
        path.unlink()
    with pytest.raises(CorruptSegment, match="is not there"):
        plant.fill()
    assert plant.lost() == []
    assert read_ingested_offsets(plant.lake, TOPIC).ends[0] == 20
