"""Quarantined records that today's code takes join the events and all tables below; the others stay, and say why."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests import rewrites
from tests.plant import hour, plant, reading
from tests.tables.declared import TOPIC_FILE, a_topic, edited, written
from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.offset_selection import OffsetSelection
from twofold.batch.rewrite.redrive import _places
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.published_table import PublishedTable
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME, QUARANTINED = "plant.readings", "plant.readings_quarantine"
LONG = b" " * 500


def topic(greatest: int, max_bytes: int) -> str:
    """A topic that takes values up to one, in records up to a size."""
    rules = f'    checks=[between("value", 0, {greatest})],\n    max_bytes={max_bytes},\n)\n'
    file = edited(TOPIC_FILE, "import Topic\n", "import Topic\nfrom twofold.quality.rules import between\n")
    return file.rstrip().removesuffix(")") + rules


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Readings of which the offsets 1 to 4 are refused: two values, a size, and what is no JSON."""
    folder = tmp_path_factory.mktemp("before")
    settings = Settings(home=folder / "home", shuffle_partitions=1)
    world = World(spark, settings, "plant", plant(folder / "then", readings=topic(10, 200)))
    records = [
        reading("a", 0.1, 1.0),
        reading("a", 0.2, 20.0),
        reading("a", 0.3, 60.0),
        reading("b", 0.4, 5.0) + LONG,
        b"no JSON",
    ]
    world.append({NAME: records})
    world.append({NAME: [reading(sensor, 9, 1.0) for sensor in "ab"]})
    world.maintain(world.all_tables)
    return world


@pytest.fixture
def world(before: World, settings: Settings) -> World:
    """The same, in a home of its own."""
    return before.copied_to(settings)


@pytest.fixture
def now(world: World, tmp_path: Path) -> Platform:
    """The same platform by today's code: values up to 50, and larger records."""
    world.registry = plant(tmp_path / "now", readings=topic(50, 10_000))
    return Platform(world.spark, world.lake, world.registry)


def redrive(platform: Platform, reason: str | None = None, **span: Any) -> list[RunResult]:
    return rewrites.redrive(platform, platform.registry.topics[NAME], OffsetSelection(**span), reason)


def events(world: World) -> dict[int, bool]:
    """Offset -> whether a redrive made the row."""
    return {row["_offset"]: row["_replayed"] for row in world.rows(NAME).to_pylist()}


def refused(world: World) -> dict[int, list[str]]:
    return {row["_offset"]: row["reasons"] for row in world.rows(QUARANTINED).to_pylist()}


def totals(world: World) -> dict[tuple[str, datetime], float]:
    return {(row["sensor"], row["hour"]): row["total"] for row in world.rows("plant.hours").to_pylist()}


def versions(world: World) -> dict[str, int]:
    return {name: world.lake.version(name) for name in world.lake.names()}


@pytest.mark.spark
def test_a_table_that_was_declared_and_is_not_there_yet_stops_no_redrive(world: World, now: Platform) -> None:
    shutil.rmtree(world.lake.uri("plant.hours"))
    assert sorted(o.table for o in redrive(now) if o.changed) == ["plant.kept", NAME, QUARANTINED]
    assert not world.lake.exists("plant.hours")


@pytest.mark.spark
def test_what_passes_today_reaches_every_table_and_only_once(world: World, now: Platform) -> None:
    before = refused(world)
    assert set(before) == {1, 2, 3, 4}
    assert totals(world)["a", hour(0)] == 1.0

    into, out_of, *below = redrive(now)

    assert (into.touched, into.inserted, into.updated, into.deleted) == (4, 2, 0, 0)
    assert (out_of.inserted, out_of.updated, out_of.deleted) == (0, 1, 2)
    assert events(world) == {0: False, 1: True, 3: True, 5: False, 6: False}
    assert {o.table for o in below if o.changed} == {"plant.hours", "plant.kept"}
    assert (totals(world)["a", hour(0)], totals(world)["b", hour(0)]) == (21.0, 5.0)
    # What still fails says what it fails by now; what nothing changed for is as it was.
    assert refused(world)[2] != before[2]
    assert "50" in refused(world)[2][0]
    assert refused(world)[4] == before[4]
    world.maintain(world.all_tables)
    assert [o for o in world.reconcile(world.all_tables) if o.changed] == []

    known = versions(world)
    assert [(o.changed, o.files_written) for o in redrive(now) if o.changed or o.files_written] == []
    assert versions(world) == known


@pytest.mark.spark
def test_records_are_chosen_by_reason_offset_and_time(world: World, now: Platform) -> None:
    rows = world.rows(QUARANTINED).to_pylist()
    appended = rows[0]["_appended_at"]
    assert [redrive(now, **choice) and set(refused(world)) for choice in (
        {"reason": "no such reason"},
        {"start": {0: 4}},
        {"end": {0: 1}},
        {"start": appended + timedelta(seconds=1)},
        {"end": appended},
        {"reason": "bytes", "end": {0: 3}},
        {"partitions": [1]},
    )] == [{1, 2, 3, 4}] * 7  # fmt: skip
    redrive(now, reason="bytes", start=appended, end={0: 4}, partitions=[0, 2])
    assert set(refused(world)) == {1, 2, 4}
    redrive(now, start={0: 1}, end={0: 2})
    assert set(refused(world)) == {2, 4}


@pytest.mark.spark
def test_a_redrive_that_was_killed_ends_what_it_began(
    world: World, now: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[str] = []
    publish: Callable[..., Any] = PublishedTable.publish

    def killed(target: PublishedTable, *args: Any, **options: Any) -> Any:
        if target.lake.settings.home != world.settings.home:
            return publish(target, *args, **options)  # in the copy
        if published:
            raise KeyboardInterrupt
        published.append(target.name)
        return publish(target, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(PublishedTable, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            redrive(now)
    assert set(events(world)) & set(refused(world)) == {1, 3}

    into, out_of, *_ = redrive(now)
    assert (into.inserted, out_of.deleted) == (2, 2), "what it began, too"
    assert events(world) == {0: False, 1: True, 3: True, 5: False, 6: False}
    assert set(refused(world)) == {2, 4}
    assert totals(world)["a", hour(0)] == 21.0
    assert [o for o in world.reconcile(world.all_tables) if o.changed] == []


def test_an_empty_reason_is_refused(lake: Lake) -> None:
    with pytest.raises(BadArgument, match="The reason is empty"):
        redrive(Platform(None, lake, Registry({NAME: a_topic()}, {})), reason=" ")  # type: ignore[arg-type]


def test_what_was_encrypted_as_a_whole_is_left_where_it_is(lake: Lake, tmp_path: Path) -> None:
    own = edited(TOPIC_FILE, "import Topic\n", "import Topic, personal\n")
    file = edited(own, '"double?"', 'personal("sensor")')
    readings = load(written(tmp_path, {"plant/readings.py": file})).require_sound().topics[NAME]
    lake.ensure(QUARANTINED, QUARANTINE_SCHEMA, statistics=[])
    values = [b"enc:1:" + b"A" * 22 + b":" + b"A" * 43, b'{"sensor": "enc:1:"}', None]
    rows = [{"_partition": 0, "_offset": n, "value": value, "reasons": ["wrong"]} for n, value in enumerate(values)]
    kept = pa.Table.from_pylist(rows, schema=QUARANTINE_SCHEMA)
    Writer(lake, QUARANTINED).append(kept, CommitTag(app="test", version=1, info={}))
    assert _places(lake, readings, OffsetSelection(), "wrong")["_offset"].to_pylist() == [1, 2]
