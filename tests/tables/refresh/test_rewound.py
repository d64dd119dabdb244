"""A reader of inputs goes back to what others had read of them when they wrote its table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from tests.tables.declared import a_table, a_topic
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.acceptance import REFRESH, STREAM
from twofold.tables.refresh.rewound import next_versions
from twofold.tables.refresh.streaming_checkpoint import Checkpoint, FeedPosition

TABLE, TOPIC = a_table(), a_topic()
REGISTRY = Registry({TOPIC.full_name: TOPIC}, {TABLE.full_name: TABLE})


@pytest.fixture
def checkpoint(lake: Lake) -> Checkpoint:
    """The stream has read the topic below version 8, and its table was at version 1 before."""
    lake.ensure(TABLE.full_name, pa.schema([("sensor", pa.string())]), statistics=[])
    checkpoint = Checkpoint.of_table(lake.settings, TABLE)
    commit(lake, {TOPIC.full_name: 3})
    checkpoint.take(FeedPosition(5, [8], 1))
    return checkpoint


def commit(lake: Lake, inputs: Mapping[str, int], rows: int = 1, **info: object) -> None:
    writer = Writer(lake, TABLE.full_name)
    stamp = CommitTag(app=REFRESH, version=writer.next_number(REFRESH), info={"inputs": inputs, **info})
    writer.append(pa.table({"sensor": ["a"] * rows}, schema=pa.schema([("sensor", pa.string())])), stamp)


def following(lake: Lake, checkpoint: Checkpoint) -> list[int]:
    return next_versions(lake, REGISTRY, TABLE, checkpoint)


def test_a_stream_goes_back_to_what_another_writer_had_read(lake: Lake, checkpoint: Checkpoint) -> None:
    assert following(lake, checkpoint) == [8], "what was written before its own step it has seen"
    commit(lake, {TOPIC.full_name: 9}, run="late-1")
    commit(lake, {}, run="rollback-1")
    assert following(lake, checkpoint) == [8], "newer input, and none"
    commit(lake, {TOPIC.full_name: 4}, run="backfill-1")
    commit(lake, {TOPIC.full_name: 6}, run="late-2")
    assert following(lake, checkpoint) == [5]
    checkpoint.take(FeedPosition(6, [8], lake.version(TABLE.full_name)))
    assert following(lake, checkpoint) == [8]


def test_a_stream_does_not_go_back_for_its_own_commits(lake: Lake, checkpoint: Checkpoint) -> None:
    commit(lake, {TOPIC.full_name: 4}, **{STREAM: checkpoint.stream})
    assert following(lake, checkpoint) == [8]
    commit(lake, {TOPIC.full_name: 4}, **{STREAM: "of another home"})
    assert following(lake, checkpoint) == [5]


def test_a_commit_without_rows_is_not_gone_back_for(lake: Lake, checkpoint: Checkpoint) -> None:
    commit(lake, {TOPIC.full_name: 4}, rows=0, run="definition-1")
    assert following(lake, checkpoint) == [8]


def test_where_commits_are_gone_all_is_read_again(lake: Lake, checkpoint: Checkpoint) -> None:
    commit(lake, {TOPIC.full_name: 9}, run="late-1")
    lake.open(TABLE.full_name).create_checkpoint()
    for version in range(3):
        Path(lake.uri(TABLE.full_name), "_delta_log", f"{version:020d}.json").unlink()
    assert following(lake, checkpoint) == []


def test_a_position_of_an_older_format_stays_where_it_is(lake: Lake, checkpoint: Checkpoint) -> None:
    commit(lake, {TOPIC.full_name: 4}, run="backfill-1")
    (checkpoint.path / "position").write_text("[5, [8]]")
    assert checkpoint.position == FeedPosition(5, [8])
    assert following(lake, checkpoint) == [8]
