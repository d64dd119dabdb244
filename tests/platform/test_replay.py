"""A replay puts right what a decoder once did wrong, carries it through every table below, and does it once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.platform.acknowledged_records import faults
from tests.rewrites import replay
from tests.servers import empty_log
from twofold.batch.log_reader import offsets_at
from twofold.batch.offset_selection import OffsetSelection
from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.producer import run
from twofold.infra.errors import BadArgument, NotArchived
from twofold.infra.project.settings import Settings
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World
from twofold_archive.format.record_columns import HEADERS_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.prove, pytest.mark.platform, pytest.mark.spark]

TOPIC = "flights.departures"
HOURS = "flights.delays_by_hour"
TABLES = [HOURS, "flights.plane_days", "flights.flights", "flights.carrier_days", "flights.distinct_planes"]
"""Windows, sessions, a join, what follows a table, sketches."""
MISREAD = "_partition = 0 AND _offset >= 20 AND _offset < 60"
REFUSED = "_partition = 1 AND _offset >= 10 AND _offset < 40"


@pytest.fixture(scope="module")
def world(spark: SparkSession, broker: Settings) -> Iterator[World]:
    """Two days of flights, ingested from a real broker and maintained by streams of each kind."""
    everything = load()
    few = Registry(everything.topics, {name: everything.tables[name] for name in TABLES})
    with empty_log(broker) as log:
        run(log, domain="flights", start=date(2013, 1, 1), end=date(2013, 1, 3), imperfections=FaultInjection())
        world = World(spark, log, "flights", registry=few)
        Ingest(spark, world.lake, few, "flights").start(available_now=True).awaitTermination()
        world.maintain(TABLES)
        yield world


@pytest.fixture
def own(world: World, tmp_path: Path) -> World:
    """The same, in a home that a test may change."""
    return world.copied_to(replace(world.settings, home=tmp_path / "home"))


def damage(world: World) -> tuple[int, int]:
    """What a faulty decoder would have left: delays an hour too long, and good records in quarantine."""
    events = DeltaTable(world.lake.uri(TOPIC))
    lost = pa.table(events.scan(predicate=REFUSED))
    misread = events.update(updates={"delay_min": "delay_min + 60"}, predicate=f"{MISREAD} AND delay_min IS NOT NULL")
    events.delete(REFUSED)
    quarantined = pa.table(
        {
            "_partition": lost["_partition"],
            "_offset": lost["_offset"],
            "_appended_at": lost["_appended_at"],
            "key": pa.array([b"key"] * len(lost)),
            "value": pa.array([b"{}"] * len(lost)),
            "headers": pa.nulls(len(lost), HEADERS_TYPE),
            "reasons": pa.array([["a bug"]] * len(lost)),
        }
    )
    write_deltalake(world.lake.uri(TOPIC + "_quarantine"), quarantined, mode="append")
    return misread["num_updated_rows"], len(lost)


def content(world: World, name: str) -> Counter[str]:
    """The rows of a table, without what says when they were written, and what may differ by how it was computed."""
    rows = world.rows(name)
    table = world.registry.tables.get(name)
    left_out = {"_replayed", "_late_by_ms", "_appended_at", *((table.tolerances or {}) if table else {})}
    columns = [c for c in rows.column_names if c not in left_out]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("rows", rows)
    return Counter(map(repr, connection.sql(f"SELECT {', '.join(columns)} FROM rows").fetchall()))


def test_a_decoder_s_mistake_is_undone_everywhere_and_only_once(own: World, spark: SparkSession) -> None:
    """Two days of flights, five tables, and a whole topic that is decoded again, twice."""
    names = [TOPIC, TOPIC + "_quarantine", *own.registry.tables]
    right = {name: content(own, name) for name in names}
    assert not faults(own.settings)
    misread, lost = damage(own)
    assert misread > 0
    assert lost > 0
    own.reconcile(TABLES)
    assert content(own, "flights.delays_by_hour") != right["flights.delays_by_hour"], "the damage reached nothing"

    platform = Platform(spark, own.lake, own.registry)
    topic = own.registry.topics[TOPIC]
    events, quarantine, *below = replay(platform, topic)
    assert (events.inserted, events.updated, events.deleted) == (lost, misread, 0)
    assert (quarantine.inserted, quarantine.updated, quarantine.deleted) == (0, 0, lost)
    assert not faults(own.settings)
    assert {o.table for o in below if o.changed} >= {"flights.delays_by_hour", "flights.flights"}
    own.maintain(TABLES)
    own.reconcile(TABLES)
    assert {name: content(own, name) for name in names} == right

    versions = {name: own.lake.version(name) for name in own.lake.names()}
    again = replay(platform, topic)
    assert [(o.changed, o.files_written) for o in again] == [(0, 0)] * len(again)
    assert {name: own.lake.version(name) for name in own.lake.names()} == versions


def test_a_time_is_the_first_offset_that_the_broker_appended_since(world: World) -> None:
    topic = world.registry.topics[TOPIC]
    rows = pa.concat_tables(
        [world.rows(name).select(["_partition", "_offset", "_appended_at"]) for name in (TOPIC, TOPIC + "_quarantine")]
    )
    connection = duckdb.connect()
    connection.register("rows", rows)
    [(instant,)] = connection.sql("SELECT quantile_disc(_appended_at, 0.5) FROM rows").fetchall()
    expected = connection.execute(
        "SELECT _partition, min(_offset) FROM rows WHERE _appended_at >= ? GROUP BY 1", [instant]
    ).fetchall()
    ends = read_ingested_offsets(world.lake, topic).ends
    assert offsets_at(world.lake, topic, instant) == {**ends, **dict(expected)}, "the end where nothing came since"
    assert offsets_at(world.lake, topic, instant + timedelta(days=1)) == ends


def test_offsets_that_are_not_there_are_refused_before_anything_is_touched(world: World, spark: SparkSession) -> None:
    platform = Platform(spark, world.lake, world.registry)
    topic = world.registry.topics[TOPIC]
    versions = {name: world.lake.version(name) for name in world.lake.names()}
    with pytest.raises(BadArgument, match=r"start names the partitions \[9\]"):
        replay(platform, topic, OffsetSelection(start={9: 0}))
    with pytest.raises(NotArchived, match="the frontier of what is ingested"):
        replay(platform, topic, OffsetSelection(start={0: 0}, end={0: 10_000_000}))
    assert {name: world.lake.version(name) for name in world.lake.names()} == versions
