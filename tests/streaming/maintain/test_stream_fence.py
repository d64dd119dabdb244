"""Of the streams of two homes one writes a table, and the one that takes over makes every row right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.plant import hour, plant, reading
from twofold.infra.delta.delta_writer import CommitTag, Writer, Written
from twofold.infra.errors import WriteConflict
from twofold.streaming.maintain.closed_row_guard import ClosedRowGuard
from twofold.streaming.maintain.stateful_query import QueryDrivenStream
from twofold.streaming.maintain.stream_fence import StreamFence
from twofold.tables.declare.registry import load
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from twofold.infra.delta.lake import Lake
    from twofold.infra.project.settings import Settings

NAME = "flights.delays_by_hour"


@pytest.fixture
def guard(lake: Lake, tmp_path: Path) -> ClosedRowGuard:
    lake.ensure(NAME, pa.schema([pa.field("origin", pa.string())]), statistics=[])
    return ClosedRowGuard(Checkpoint(tmp_path / "own"), lake, load().find_table(NAME))


def committed(lake: Lake, fence: StreamFence, stream: str, batch: int) -> Written:
    def write(stamp: CommitTag) -> Written:
        return Writer(lake, NAME).append(pa.table({"origin": [stream]}), stamp)

    return fence.commit(stream, batch, {"watermark_ms": 1_000 * batch}, write)


def test_of_two_streams_that_know_the_same_commits_one_goes_on(lake: Lake, guard: ClosedRowGuard) -> None:
    first, second = (StreamFence(Writer(lake, NAME)) for _ in range(2))
    assert committed(lake, first, "a", 0).version == 1
    assert second.is_of_another("b")
    second.claim("b", guard)
    assert guard.closed_before_ms is None, "nothing is closed at 0"
    with pytest.raises(WriteConflict, match="another stream has written the table since"):
        committed(lake, first, "a", 1)
    assert committed(lake, second, "b", 0).version == 3
    with pytest.raises(WriteConflict):
        committed(lake, StreamFence(Writer(lake, NAME)), "a", 1)
    assert sorted(pa.table(lake.open(NAME).scan())["origin"].to_pylist()) == ["a", "b"]


def test_a_micro_batch_that_was_committed_before_a_crash_is_not_made_again(lake: Lake, guard: ClosedRowGuard) -> None:
    assert committed(lake, StreamFence(Writer(lake, NAME)), "a", 4).version == 1
    again = StreamFence(Writer(lake, NAME))
    assert (committed(lake, again, "a", 4).skipped, committed(lake, again, "a", 5).version) == (True, 2)
    again.claim("a", guard)
    assert lake.version(NAME) == 2


def test_a_micro_batch_that_an_older_version_committed_is_not_made_again(lake: Lake, guard: ClosedRowGuard) -> None:
    Writer(lake, NAME).append(pa.table({"origin": ["a"]}), CommitTag(app="stream/a", version=4))
    fence = StreamFence(Writer(lake, NAME))
    assert (committed(lake, fence, "a", 4).skipped, committed(lake, fence, "a", 5).version) == (True, 2)


@pytest.mark.spark
def test_a_stream_that_slept_overwrites_no_row_of_another_home(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep: list[tuple[Any, ...]] = []
    upsert = QueryDrivenStream._upsert

    def fall_asleep(*micro_batch: Any) -> Written:
        asleep.append(micro_batch)
        raise KeyError("asleep")

    first = World(spark, settings, "plant", plant(tmp_path / "declared"))
    second = replace(first, settings=replace(settings, home=tmp_path / "second", lake=settings.lake_uri))
    first.append({"readings": [reading("a", 0.1, 1), reading("a", 2, 4)]})
    first.maintain(["hours"])
    first.append({"readings": [reading("a", 0.2, 2), reading("a", 2.1, 1)]})
    with monkeypatch.context() as sleeping:
        sleeping.setattr(QueryDrivenStream, "_upsert", fall_asleep)
        with pytest.raises(Exception, match="asleep"):
            first.maintain(["hours"])
    second.append({"readings": [reading("a", 8, 1)]})
    second.maintain(["hours"])
    second.append({"readings": [reading("a", 0.3, 12), reading("a", 8.1, 1)]})
    second.maintain(["hours"])
    second.reconcile(["hours"])
    assert totals(second) == {hour(0): 15, hour(2): 5, hour(8): 2}

    with pytest.raises(WriteConflict, match=r"plant\.hours: another stream has written the table since"):
        upsert(*asleep[0])
    first.append({"readings": [reading("a", 8.2, 1)]})
    first.maintain(["hours"])
    assert totals(first) == {hour(0): 15, hour(2): 5, hour(8): 3}
    assert [o.changed for o in first.reconcile(["hours"])] == [0]


def totals(world: World) -> Mapping[object, float]:
    return {row["hour"]: row["total"] for row in world.rows("plant.hours").to_pylist()}
