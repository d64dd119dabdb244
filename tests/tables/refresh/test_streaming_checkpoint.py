"""A checkpoint directory as Spark 4.2 writes it, read without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tables.declared import written
from twofold.tables.refresh.streaming_checkpoint import Checkpoint, FeedPosition, MicroBatch, delta_offset

DELTA_3 = """\
v1
{"batchWatermarkMs":1356998400000,"batchTimestampMs":1400000000000,"conf":{"spark.sql.shuffle.partitions":"2"}}
{"sourceVersion":1,"reservoirId":"ab","reservoirVersion":7,"index":-1,"isStartingVersion":false}
-
"""
KAFKA_0 = '\x00v1\n{"plant.readings":{"0":12,"1":-2}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    files = {
        "metadata": '{"id":"5d9c-77"}',
        "offsets/2": DELTA_3.replace("1356998400000", "0"),
        "offsets/3": DELTA_3,
        "offsets/.3.crc": "x",
        "offsets/4": DELTA_3.replace("1356998400000", "1356998401000"),
        "commits/2": 'v1\n{"nextBatchWatermarkMs":0}',
        "commits/3": 'v1\n{"nextBatchWatermarkMs":1356998401000}',
        "sources/0/0": KAFKA_0,
    }
    return Checkpoint(written(tmp_path, files))


def test_a_checkpoint_that_is_not_there_knows_nothing(tmp_path: Path) -> None:
    none = Checkpoint(tmp_path / "none")
    assert (none.is_new, none.stream, none.committed, none.watermark_ms()) == (True, "", None, None)
    assert (none.sources(0), none.initial()) == ([], None)


def test_the_stream_keeps_its_id(checkpoint: Checkpoint) -> None:
    assert (checkpoint.is_new, checkpoint.stream) == (False, "5d9c-77")


def test_a_planned_micro_batch_makes_it_used_though_none_has_ended(tmp_path: Path) -> None:
    planned = Checkpoint(written(tmp_path, {"offsets/0": DELTA_3}))
    assert (planned.is_new, planned.committed) == (False, None)


def test_the_watermark_is_that_of_the_last_micro_batch_that_ended(checkpoint: Checkpoint) -> None:
    assert (checkpoint.committed, checkpoint.watermark_ms()) == (3, 1_356_998_400_000)
    assert checkpoint.watermark_ms(4) == 1_356_998_401_000


def test_no_event_yet_is_no_watermark(checkpoint: Checkpoint) -> None:
    assert checkpoint.watermark_ms(2) is None
    assert checkpoint.watermark_ms(99) is None


def test_the_end_of_each_source_is_reported_also_of_one_that_has_none(checkpoint: Checkpoint) -> None:
    source, nothing = checkpoint.sources(3)
    assert (source["reservoirVersion"], source["index"], nothing) == (7, -1, None)
    assert checkpoint.sources(99) == []


def test_where_a_kafka_source_began_is_reported(checkpoint: Checkpoint) -> None:
    assert checkpoint.initial() == {"plant.readings": {"0": 12, "1": -2}}
    assert checkpoint.initial(1) is None


def test_a_micro_batch_has_ended_when_the_next_one_is_planned(checkpoint: Checkpoint) -> None:
    assert [batch.number for batch in checkpoint.ended] == [2, 3]
    last = checkpoint.ended[-1]
    assert (last.versions, last.watermark_ms, last.is_between_commits) == ([7, 0], 1_356_998_400_000, True)
    assert last.settings == {"spark.sql.shuffle.partitions": "2"}
    (checkpoint.path / "commits" / "3").unlink()
    assert [batch.number for batch in checkpoint.ended] == [2, 3]
    (checkpoint.path / "offsets" / "4").unlink()
    assert [batch.number for batch in checkpoint.ended] == [2]


@pytest.mark.parametrize("text", ["", "v1\n", "v1\n{}\n-", DELTA_3[:90], DELTA_3[:160]])
def test_a_damaged_micro_batch_is_passed_over(checkpoint: Checkpoint, text: str) -> None:
    (checkpoint.path / "offsets" / "2").write_text(text)
    assert [batch.number for batch in checkpoint.ended] == [3]


@pytest.mark.parametrize("file", ["metadata", "offsets/3", "offsets/4", "commits/3"])
def test_a_checkpoint_is_whole_while_its_newest_files_are(checkpoint: Checkpoint, file: str) -> None:
    assert checkpoint.is_whole
    (checkpoint.path / file).write_text("{")
    assert not checkpoint.is_whole


def test_a_position_is_whole_while_it_can_be_read(tmp_path: Path) -> None:
    following = Checkpoint(tmp_path)
    assert not following.is_whole
    following.take(FeedPosition(4, [12, 3]))
    assert following.is_whole
    (tmp_path / "position").write_text("[4, [12")
    assert not following.is_whole


def test_a_planned_micro_batch_reads_as_spark_s_own(tmp_path: Path) -> None:
    made = Checkpoint(tmp_path)
    plan = MicroBatch(ends=[delta_offset("ab", 7), delta_offset("cd", 0)], watermark_ms=5, settings={"a": "b"})
    made.plan(0, plan)
    assert (tmp_path / "offsets" / "0").read_text().splitlines()[2:] == DELTA_3.splitlines()[2:]
    made.end(0)
    assert (made.committed, made.next_versions(), made.watermark_ms(), made.is_whole) == (0, [7, 0], 5, True)


def test_a_plan_without_a_watermark_takes_what_spark_has_noted(checkpoint: Checkpoint) -> None:
    checkpoint.plan(4, MicroBatch(ends=[None, None]))
    assert checkpoint.watermark_ms(4) == 1_356_998_401_000


def test_a_query_is_moved_to_other_offsets_with_its_watermark(checkpoint: Checkpoint) -> None:
    checkpoint.move([delta_offset("ab", 9), delta_offset("cd", 2)])
    assert (checkpoint.next_versions(), checkpoint.watermark_ms()) == ([9, 2], 1_356_998_400_000)
    assert not (checkpoint.path / "offsets" / ".3.crc").exists()
    assert [batch.versions for batch in checkpoint.ended] == [[9, 2], [9, 2]]


def test_a_part_of_a_commit_is_left_to_the_next_micro_batch() -> None:
    part = {"sourceVersion": 1, "reservoirId": "ab", "reservoirVersion": 7, "index": 3, "isStartingVersion": False}
    whole = MicroBatch(ends=[part, None], watermark_ms=5, number=3).without_parts()
    assert (whole.ends, whole.watermark_ms, whole.number) == ([delta_offset("ab", 7), None], None, None)


def test_a_lost_checkpoint_is_kept_next_to_the_one_that_replaces_it(tmp_path: Path, checkpoint: Checkpoint) -> None:
    lost = Checkpoint(written(tmp_path / "lost", {"metadata": '{"id": "old"}'}))
    made = Checkpoint(written(tmp_path / "made", {"metadata": '{"id": "new"}'}))
    made.take_place_of(lost)
    assert (lost.stream, Checkpoint(tmp_path / "lost.lost").stream, made.path.exists()) == ("new", "old", False)


def test_a_note_that_is_cut_short_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, write = Checkpoint(tmp_path / "hours"), Path.write_text

    def die(file: Path, text: str) -> None:
        write(file, text[:1])
        raise KeyboardInterrupt

    checkpoint.take(FeedPosition(0, [3]))
    checkpoint.note_definition("f00d")
    known = (checkpoint.stream, checkpoint.position, checkpoint.definition)
    notes = (lambda: checkpoint.take(FeedPosition(1, [4])), lambda: checkpoint.note_definition("cafe"))
    for note in (*notes, lambda: Checkpoint(tmp_path / "days").take(FeedPosition(0, [1]))):
        with monkeypatch.context() as cut:
            cut.setattr(Path, "write_text", die)
            with pytest.raises(KeyboardInterrupt):
                note()
    assert (checkpoint.stream, checkpoint.position, checkpoint.definition) == known
    assert Checkpoint(tmp_path / "days").stream == ""
