"""A checkpoint directory as Spark 4.2 writes it, read without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tables.checkpoint import Checkpoint
from tests.tables.declared import written

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


def test_the_end_of_each_source_is_told_also_of_one_that_has_none(checkpoint: Checkpoint) -> None:
    source, nothing = checkpoint.sources(3)
    assert (source["reservoirVersion"], source["index"], nothing) == (7, -1, None)
    assert checkpoint.sources(99) == []


def test_where_a_kafka_source_began_is_told(checkpoint: Checkpoint) -> None:
    assert checkpoint.initial() == {"plant.readings": {"0": 12, "1": -2}}
    assert checkpoint.initial(1) is None
