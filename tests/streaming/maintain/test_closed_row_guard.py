"""A new stream knows which rows its predecessors have closed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.plant import hour, plant
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.instants import epoch_ms
from twofold.streaming.maintain.closed_row_guard import ClosedRowGuard
from twofold.tables.declare.registry import load
from twofold.tables.declare.table import Table
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

NAME = "flights.delays_by_hour"


@pytest.fixture
def table(lake: Lake) -> Table:
    lake.ensure(NAME, pa.schema([pa.field("origin", pa.string())]), statistics=[])
    return load().find_table(NAME)


def commit(lake: Lake, number: int, watermark_ms: int | None) -> None:
    rows = pa.table({"origin": ["JFK"]})
    Writer(lake, NAME).append(rows, CommitTag(app="stream/a", version=number, info={"watermark_ms": watermark_ms}))


def closed_before_ms(lake: Lake, table: Table, directory: Path) -> int | None:
    """What a stream leaves alone that starts with this directory as its checkpoint."""
    fence = ClosedRowGuard(Checkpoint(directory), lake, table)
    fence.record_watermark_once()
    return fence.closed_before_ms


def test_the_first_stream_of_a_table_may_write_every_row(lake: Lake, table: Table, tmp_path: Path) -> None:
    assert closed_before_ms(lake, table, tmp_path / "new") is None


def test_the_next_stream_leaves_alone_what_the_newest_commit_had_closed(
    lake: Lake, table: Table, tmp_path: Path
) -> None:
    commit(lake, 0, 1_000)
    commit(lake, 1, 5_000)
    assert closed_before_ms(lake, table, tmp_path / "new") == 5_000


def test_a_stream_that_goes_on_keeps_its_fence(lake: Lake, table: Table, tmp_path: Path) -> None:
    commit(lake, 0, 1_000)
    assert closed_before_ms(lake, table, tmp_path / "new") == 1_000
    offsets = tmp_path / "new" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text(json.dumps({}))
    commit(lake, 1, 9_000)
    assert closed_before_ms(lake, table, tmp_path / "new") == 1_000


@pytest.mark.parametrize("begun_at", [None, 2_000])
def test_a_stream_lost_before_it_caught_up_does_not_lower_the_fence(
    lake: Lake, table: Table, tmp_path: Path, begun_at: int | None
) -> None:
    commit(lake, 0, 5_000)
    assert closed_before_ms(lake, table, tmp_path / "new") == 5_000
    commit(lake, 1, begun_at)
    assert closed_before_ms(lake, table, tmp_path / "new") == 5_000


def test_a_row_without_a_closing_time_is_open(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    world = World(spark, settings, "plant", plant(tmp_path / "declared"))
    table, name = world.registry.find_table("hours"), "plant.hours"
    (tmp_path / "new.fence").write_text(str(epoch_ms(hour(5))))
    fence = ClosedRowGuard(Checkpoint(tmp_path / "new"), world.lake, table)
    schema = pa.schema(world.lake.open(name).schema())
    closing = {"a": hour(4), "b": hour(5), "c": None}
    rows = [
        {"sensor": sensor, "hour": hour(0), "closes_at": at, "total": 1.0, "greatest": 1.0}
        for sensor, at in closing.items()
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema))
    assert sorted(row.sensor for row in fence.beyond(frame).collect()) == ["b", "c"]
    writer = Writer(world.lake, name)
    writer.append(pa.Table.from_pylist(rows, schema), CommitTag(app="stream/a", version=0, info={}))
    fence.delete_open_rows(writer)
    assert world.rows(name)["sensor"].to_pylist() == ["a"]


def test_a_table_that_was_created_again_has_no_fence(lake: Lake, table: Table, tmp_path: Path) -> None:
    (tmp_path / "new.fence").write_text("5000")
    assert closed_before_ms(lake, table, tmp_path / "new") is None
