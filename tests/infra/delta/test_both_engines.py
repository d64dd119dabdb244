"""Both engines commit the same; what one wrote the other reads the same, as rows, as a stream, as a change feed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.infra.delta.counts import NAME, SCHEMA, Row, difference, rows, stamp, stored
from twofold.infra.delta.compaction import compact
from twofold.infra.delta.delta_writer import Writer, Written
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import QualityFailed, SchemaMismatch
from twofold.infra.project.settings import Engine, Settings
from twofold.infra.rows.sizes import collect_if_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TYPE = pa.schema(
    [
        ("k", pa.string()),
        ("price", pa.decimal128(20, 4)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("yes", pa.bool_()),
        ("small", pa.int32()),
        ("ratio", pa.float64()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
        ("place", pa.struct([("name", pa.string()), ("height", pa.int32())])),
    ]
)
VALUES: list[Row] = [
    (
        "full",
        Decimal("-1234567890.0001"),
        date(2012, 2, 29),
        datetime(2013, 1, 1, 10, 0, 0, 123456, tzinfo=UTC),
        True,
        -(2**31),
        -0.1,
        b"\x00\xff",
        ["x", "y é"],
        {"name": "roof", "height": None},
    ),
    ("nulls", *([None] * 9)),
    (
        "first",
        Decimal("0.0000"),
        date(1, 1, 1),
        datetime(1, 1, 1, tzinfo=UTC),
        False,
        0,
        float("inf"),
        b"",
        [],
        {"name": None, "height": 3},
    ),
    (
        "last",
        Decimal("9999999999999999.9999"),
        date(9999, 12, 31),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        None,
        2**31 - 1,
        5e-324,
        b"x" * 100,
        ["é" * 50],
        None,
    ),
    ("before 1970", None, date(1969, 12, 31), datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), *([None] * 6)),
]


def test_every_type_survives(writer_to: Callable[..., Writer]) -> None:
    writer = writer_to(EVERY_TYPE, "plant.types")
    writer.append(rows(*VALUES[:2], schema=EVERY_TYPE), stamp(1))
    writer.upsert(rows(*VALUES, schema=EVERY_TYPE), ["k"], stamp(2))
    assert stored(writer.lake, "plant.types") == sorted(VALUES, key=repr)
    assert writer.upsert(rows(*VALUES, schema=EVERY_TYPE), ["k"], stamp(3)) == Written()


def test_maps_at_any_depth_are_compared(writer_to: Callable[..., Writer]) -> None:
    counts = pa.map_(pa.string(), pa.int64())
    nested = pa.struct([("by_day", pa.list_(counts))])
    schema = pa.schema([("k", pa.string()), ("m", counts), ("s", nested)])
    before = [("a", [("x", 1)], {"by_day": [[("y", 2)]]}), ("b", None, None), ("c", [], {"by_day": None})]
    after = [before[0], ("b", [("z", 3)], None), ("c", [], {"by_day": [[("y", 4)]]})]
    writer = writer_to(schema, "plant.maps")
    assert writer.upsert(rows(*before, schema=schema), ["k"], stamp(1)).inserted == 3
    assert writer.upsert(rows(*after, schema=schema), ["k"], stamp(2)).updated == 2
    assert writer.upsert(rows(*after, schema=schema), ["k"], stamp(3)) == Written()
    undone = difference(*(("update", *pair) for pair in zip(before[1:], after[1:], strict=True)), schema=schema)
    assert writer.apply(undone, ["k"], stamp(1, "refresh")).updated == 2
    assert writer.apply(undone, ["k"], stamp(2, "refresh")) == Written()  # they are no more what they were
    assert stored(writer.lake, "plant.maps") == sorted(before, key=repr)


def test_signs_of_quotation_in_the_names_of_columns_are_part_of_the_names(writer_to: Callable[..., Writer]) -> None:
    """But for backticks, by which Delta's change feed fails on Spark."""
    schema = pa.schema([('k"', pa.string()), ("n'<=>", pa.int64())])
    writer = writer_to(schema, "plant.names")
    writer.upsert(rows(("a", 1), ("b", 2), schema=schema), ['k"'], stamp(1))
    changes = difference(("update", ("a", 7), ("a", 1)), ("delete", ("b", 2), ("b", 2)), schema=schema)
    written = writer.apply(changes, ['k"'], stamp(1, "refresh"), greatest=["n'<=>"])
    assert (written.updated, written.deleted) == (1, 1)
    assert stored(writer.lake, "plant.names") == [("a", 7)]


def test_a_key_may_be_an_array_or_a_struct(writer_to: Callable[..., Writer]) -> None:
    schema = pa.schema(
        [("names", pa.list_(pa.string())), ("place", pa.struct([("x", pa.float64())])), ("n", pa.int64())]
    )
    first = [(["a", "b"], {"x": 1.0}, 1), (["a"], {"x": None}, 2), (None, None, 3), ([], {"x": 0.0}, 4)]
    key = ["names", "place"]
    writer = writer_to(schema, "plant.keys")
    assert writer.upsert(rows(*first, schema=schema), key, stamp(1)).inserted == 4
    changed = rows((["a"], {"x": None}, 20), (None, None, 30), (["a"], None, 5), schema=schema)
    written = writer.upsert(changed, key, stamp(2))
    assert (written.inserted, written.updated) == (1, 2)
    assert sorted(row[2] for row in stored(writer.lake, "plant.keys")) == [1, 4, 5, 20, 30]
    with pytest.raises(QualityFailed, match="several rows"):
        writer.upsert(rows(first[0], first[0], schema=schema), key, stamp(3))


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")], ids=str)
def test_a_key_after_the_year_9999_is_refused_by_name(writer_to: Callable[..., Writer], kind: pa.DataType) -> None:
    schema = pa.schema({"day": kind, "n": pa.int64()})
    last, after = (pa.array([days], pa.int32()).cast(pa.date32()).cast(kind) for days in (2_932_896, 2_932_897))
    writer = writer_to(schema)
    held, beyond = (pa.table([days, pa.array([1])], schema) for days in (last, after))
    assert writer.upsert(held, ["day"], stamp(1)).inserted == 1
    with pytest.raises(QualityFailed, match="a year outside of 1 to 9999 in its key, day; nothing was written"):
        writer.upsert(beyond, ["day"], stamp(2))


def test_the_same_commits_leave_the_same_rows_and_are_made_once(writer_to: Callable[..., Writer]) -> None:
    """Every kind of commit, most with rows that it has to leave alone; the claims one by one: test_delta_writer.py."""
    writer = writer_to()
    changes = difference(
        ("update", ("a", 7, 0.1), ("a", 1, 1.0)),
        ("update", ("c", 7, 0.1), ("c", 4, 4.0)),  # was raised to 5.0 since
        ("delete", ("b", 9, None), ("b", 9, None)),
        ("delete", (None, 5, 3.0), (None, 3, 3.0)),  # its n was 3, and is 5
        ("insert", ("d", 9, None), None),  # which is there
        ("insert", ("e", 4, None), None),
    )
    greater = difference(("insert", ("d", 2, None), None), ("insert", ("e", 3, 9.0), None))
    commits: list[Callable[[], Written]] = [
        lambda: writer.append(
            rows(("a", 1, 1.0), ("b", 2, float("nan")), (None, 3, 3.0)).select(["x", "k", "n"]), stamp(1)
        ),
        lambda: writer.upsert(rows(("a", 1, 1.0), ("b", 9, None), ("c", 4, 4.0), (None, 5, 3.0)), ["k"], stamp(2)),
        lambda: writer.upsert(rows(("a", 7, 7.0), ("d", 1, 1.0)), ["k"], stamp(3), keep=True),
        lambda: writer.upsert(rows(("a", 0, 9.0), ("b", 9, 0.0), ("c", 4, 5.0)), ["k"], stamp(4), greatest=["n", "x"]),
        lambda: writer.apply(changes, ["k"], stamp(1, "refresh")),
        lambda: writer.apply(greater, ["k"], stamp(2, "refresh"), greatest=["n", "x"]),
    ]
    made = [commit() for commit in commits]
    assert [(one.inserted, one.updated, one.deleted, one.version) for one in made] == [
        (3, 0, 0, 1),
        (1, 2, 0, 2),
        (1, 0, 0, 3),
        (0, 2, 0, 4),
        (1, 1, 0, 5),
        (0, 1, 0, 6),
    ]
    ended = [("a", 7, 0.1), ("b", 9, 0.0), ("c", 4, 5.0), ("d", 2, None), ("e", 4, None), (None, 5, 3.0)]
    assert stored(writer.lake) == ended
    assert [commit() for commit in commits] == [Written(skipped=True)] * len(commits)
    assert writer.upsert(rows(("a", 7, 0.1), ("b", 9, -0.0)), ["k"], stamp(5)) == Written()
    with pytest.raises(QualityFailed, match=r"have the key \{'k': 'z'\}"):
        writer.upsert(rows(("z", 1, None), ("z", 2, None)), ["k"], stamp(6))
    with pytest.raises(SchemaMismatch, match=r"plant\.counts: missing columns: n; unexpected columns: count"):
        writer.append(rows(("z", 1, None)).rename_columns(["k", "count", "x"]), stamp(6))
    assert (stored(writer.lake), writer.lake.version(NAME)) == (ended, 6)


@pytest.mark.spark
def test_what_one_engine_wrote_the_other_reads_the_same(spark: SparkSession, settings: Settings) -> None:
    for engine in ("delta-rs", "spark"):
        name = f"plant.by_{engine.replace('-', '_')}"
        lake = Lake(replace(settings, engine=engine))
        lake.ensure(name, EVERY_TYPE, statistics=["k"])
        Writer(lake, name, spark).append(rows(*VALUES, schema=EVERY_TYPE), stamp(1))
        found = lake.frame(spark, name).toArrow().to_pylist()
        assert sorted((tuple(row.values()) for row in found), key=repr) == sorted(VALUES, key=repr)


@pytest.mark.spark
def test_small_frames_go_through_this_process_and_large_ones_through_spark(
    spark: SparkSession, settings: Settings
) -> None:
    for engine, bound, expected in [
        ("auto", 3, pa.Table),
        ("auto", 2, type(spark.range(1))),
        ("delta-rs", 2, pa.Table),
        ("spark", 9, type(spark.range(1))),
    ]:
        small = replace(settings, engine=engine, small_rows=bound)
        assert isinstance(collect_if_small(small, spark.range(3)), expected)


@pytest.mark.spark
def test_a_stream_reads_every_appended_row_once_of_either_writer(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    writers = [Writer(Lake(replace(settings, engine=e)), NAME, spark) for e in ("delta-rs", "spark")]
    lake = writers[0].lake
    lake.ensure(NAME, SCHEMA, statistics=["k"])
    seen: list[str] = []

    def drain() -> None:
        query = (
            spark.readStream.format("delta")
            .option("startingVersion", 0)
            .option("skipChangeCommits", "true")
            .load(lake.uri(NAME))
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .foreachBatch(lambda frame, _: seen.extend(row.k for row in frame.collect()))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    numbers = itertools.count(1)
    for turn in range(2):
        for writer in writers:
            number = next(numbers)
            writer.append(rows((f"{number}", number, None)), stamp(number))
        compact(lake, NAME)
        writers[turn].upsert(rows(("1", 100 + turn, None)), ["k"], stamp(turn, "correction"))
        drain()
    assert seen == ["1", "2", "3", "4"]


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["delta-rs", "spark"])
def test_both_engines_read_the_change_feed_of_either(engine: Engine, spark: SparkSession, settings: Settings) -> None:
    lake = Lake(replace(settings, engine=engine))
    lake.ensure(NAME, SCHEMA, statistics=["k"])
    writer = Writer(lake, NAME, spark)
    writer.append(rows(("a", 1, None), ("b", 2, None)), stamp(1))
    changes = difference(("update", ("a", 5, None), ("a", 1, None)), ("delete", ("b", 2, None), ("b", 2, None)))
    writer.apply(changes, ["k"], stamp(1, "refresh"))
    expected = [
        ("a", 1, "insert", 1),
        ("a", 1, "update_preimage", 2),
        ("a", 5, "update_postimage", 2),
        ("b", 2, "delete", 2),
        ("b", 2, "insert", 1),
    ]
    columns = ["k", "n", "_change_type", "_commit_version"]
    by_rust = pa.table(lake.open(NAME).load_cdf(starting_version=0)).select(columns).to_pylist()
    by_spark = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 0)
        .load(lake.uri(NAME))
        .select(columns)
        .toArrow()
        .to_pylist()
    )
    assert sorted(tuple(row.values()) for row in by_rust) == expected
    assert sorted(tuple(row.values()) for row in by_spark) == expected


@pytest.fixture(autouse=True)
def _no_leftover_streams(request: pytest.FixtureRequest) -> Iterator[None]:
    """A stream that failed in a test must not reach into the next."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


KEYS = pa.schema([("k", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])


@pytest.mark.spark
def test_a_row_is_found_by_its_key_in_a_file_that_spark_wrote(spark: SparkSession, settings: Settings) -> None:
    # Its statistics cut instants to the millisecond and texts to 32 letters.
    keys: list[Row] = [
        ("it's", date(2013, 1, 1), datetime(2013, 1, 1, 10, 0, 0, 123456, tzinfo=UTC), -(2**63)),
        ("é" * 40, date(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), 2**63 - 1),
        ("", date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), 0),
        ("z" * 33, None, datetime(2013, 1, 1, 10, 0, 0, 123457, tzinfo=UTC), 7),
    ]
    schema = pa.schema([*KEYS, ("x", pa.int64())])
    Lake(settings).ensure(NAME, schema, statistics=KEYS.names)
    by_spark = Writer(Lake(replace(settings, engine="spark")), NAME, spark)
    by_rust = Writer(Lake(replace(settings, engine="delta-rs")), NAME)
    # A file for each, so that nothing but the row itself is in its statistics.
    stale = spark.createDataFrame(rows(*((*key, 0) for key in keys), schema=schema))
    by_spark.append(stale.repartitionByRange(len(keys), "n"), stamp(0, "spark"))
    for version, key in enumerate(keys):
        written = by_rust.upsert(rows((*key, 1 + version), schema=schema), KEYS.names, stamp(version, "rust"))
        assert (written.inserted, written.updated) == (0, 1), key
    assert stored(Lake(settings)) == sorted(((*key, x) for x, key in enumerate(keys, 1)), key=repr)
