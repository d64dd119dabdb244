"""Both engines commit each thing once, whoever else writes, and leave the same rows."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from infra.errors import QualityFailed, SchemaMismatch
from infra.settings import ROOT, Engine, Settings
from tables.lake import Lake
from tables.writer import BEFORE, CHANGE, Stamp, Writer, Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "plant.counts"
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
Row = tuple[Any, ...]
ENGINES = [pytest.param("delta-rs"), pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def writer_to(engine: Engine, settings: Settings, request: pytest.FixtureRequest) -> Callable[..., Writer]:
    """Makes a table and its writer, which uses the engine."""
    session = request.getfixturevalue("spark") if engine == "spark" else None
    lake = Lake(replace(settings, engine=engine))

    def make(schema: pa.Schema = SCHEMA, name: str = NAME) -> Writer:
        lake.ensure(name, schema, statistics=[schema.names[0]])
        return Writer(lake, name, session)

    return make


@pytest.fixture
def writer(writer_to: Callable[..., Writer]) -> Writer:
    return writer_to()


def rows(*cells: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=False)) for row in cells], schema=schema)


def stored(lake: Lake, name: str = NAME) -> list[Row]:
    """The table's rows as delta-rs reads them, sorted."""
    found = pa.table(lake.open(name).scan()).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def stamp(version: int, app: str = "test", **info: object) -> Stamp:
    return Stamp(app=app, version=version, info=info)


def test_an_append_is_made_once(writer: Writer) -> None:
    first = writer.append(rows(("a", 1, None), ("b", 2, 0.5)), stamp(4, cause="test"))
    assert (first.inserted, first.changed, first.version, first.skipped) == (2, 2, 1, False)
    assert first.files >= 1
    for version in (4, 3, 0):
        assert writer.append(rows(("c", 3, None)), stamp(version)) == Written(skipped=True)
    assert (writer.lake.version(NAME), stored(writer.lake)) == (1, [("a", 1, None), ("b", 2, 0.5)])
    (commit,) = writer.lake.commits(NAME, 0, 1)
    assert (commit.info, commit.rewrites, writer.done(stamp(4)), writer.done(stamp(5))) == (
        {"cause": "test"},
        False,
        True,
        False,
    )


def test_each_stream_of_commits_has_its_own_numbers(writer: Writer) -> None:
    assert writer.append(rows(("a", 1, None)), stamp(0, "one")).inserted == 1
    assert writer.append(rows(("b", 1, None)), stamp(0, "two")).inserted == 1
    assert writer.append(rows(("c", 1, None)), stamp(0, "one")).skipped


def test_columns_go_by_name(writer: Writer) -> None:
    writer.append(rows(("a", 1, 2.5)).select(["x", "k", "n"]), stamp(1))
    writer.upsert(rows(("b", 3, 4.5)).select(["n", "x", "k"]), ["k"], stamp(2))
    assert stored(writer.lake) == [("a", 1, 2.5), ("b", 3, 4.5)]


def test_an_append_of_nothing_still_says_that_it_was_made(writer: Writer) -> None:
    assert writer.append(rows(), stamp(1)).inserted == 0
    assert (writer.done(stamp(1)), stored(writer.lake)) == (True, [])


def test_an_upsert_inserts_new_keys_and_replaces_others(writer: Writer) -> None:
    writer.append(rows(("a", 1, 1.0), ("b", 2, 2.0), (None, 3, 3.0)), stamp(1))
    written = writer.upsert(rows(("a", 1, 1.0), ("b", 9, None), ("c", 4, 4.0), (None, 5, 3.0)), ["k"], stamp(2))
    assert (written.inserted, written.updated, written.deleted) == (1, 2, 0)
    assert stored(writer.lake) == [("a", 1, 1.0), ("b", 9, None), ("c", 4, 4.0), (None, 5, 3.0)]


def test_rows_that_are_there_already_write_nothing(writer: Writer) -> None:
    first = [("a", 1, None), ("b", None, float("nan")), ("c", 2, 0.0)]
    writer.append(rows(*first), stamp(1))
    version = writer.lake.version(NAME)
    again = [("a", 1, None), ("b", None, float("nan")), ("c", 2, -0.0)]
    assert writer.upsert(rows(*again), ["k"], stamp(2)) == Written()
    assert writer.upsert(rows(("a", 7, 7.0)), ["k"], stamp(3), keep=True) == Written()
    assert writer.lake.version(NAME) == version


def test_an_upsert_is_made_once(writer: Writer) -> None:
    writer.upsert(rows(("a", 1, None)), ["k"], stamp(1))
    writer.upsert(rows(("a", 2, None)), ["k"], stamp(1, "correction"))
    assert writer.upsert(rows(("a", 1, None)), ["k"], stamp(1)) == Written(skipped=True)
    assert stored(writer.lake) == [("a", 2, None)]


def test_the_first_row_of_a_key_stays_when_asked_to(writer: Writer) -> None:
    writer.upsert(rows(("a", 1, None)), ["k"], stamp(1), keep=True)
    written = writer.upsert(rows(("a", 2, None), ("b", 1, None)), ["k"], stamp(2), keep=True)
    assert (written.inserted, written.updated) == (1, 0)
    assert stored(writer.lake) == [("a", 1, None), ("b", 1, None)]


def test_the_greatest_row_stays_in_whatever_order_they_come(writer: Writer) -> None:
    arrivals: list[Row] = [(None, 9.0), (1, None), (2, None), (2, 0.5)]
    orders = [(str(order), order) for order in itertools.permutations(arrivals)]
    for turn in range(len(arrivals)):
        arrived = rows(*((key, *order[turn]) for key, order in orders))
        writer.upsert(arrived, ["k"], stamp(turn), greatest=["n", "x"])
    assert stored(writer.lake) == sorted(((key, 2, 0.5) for key, _ in orders), key=repr)


def test_an_equal_row_does_not_replace(writer: Writer) -> None:
    writer.upsert(rows(("a", 2, 1.0), ("b", None, 1.0)), ["k"], stamp(1), greatest=["n"])
    assert writer.upsert(rows(("a", 2, 7.0), ("b", None, 7.0)), ["k"], stamp(2), greatest=["n"]) == Written()
    assert stored(writer.lake) == [("a", 2, 1.0), ("b", None, 1.0)]


def difference(*changes: tuple[str, Row, Row | None]) -> pa.Table:
    """(change, row, what the row was before) as `tables.difference` tells it."""
    return pa.Table.from_pylist(
        [
            dict(zip(SCHEMA.names, row, strict=True))
            | {CHANGE: change, BEFORE + "n": before[1] if before else None, BEFORE + "x": before[2] if before else None}
            for change, row, before in changes
        ],
        schema=pa.schema([*SCHEMA, (CHANGE, pa.string()), (BEFORE + "n", pa.int64()), (BEFORE + "x", pa.float64())]),
    )


def test_a_difference_is_published_exactly(writer: Writer) -> None:
    writer.append(rows(("a", 1, None), ("b", 2, float("nan")), ("c", 3, 0.5)), stamp(1))
    changes = difference(
        ("update", ("a", 7, 0.1), ("a", 1, None)),
        ("delete", ("b", 2, float("nan")), ("b", 2, float("nan"))),
        ("insert", ("d", 4, None), None),
    )
    written = writer.apply(changes, ["k"], stamp(1, "refresh"))
    assert (written.inserted, written.updated, written.deleted, written.version) == (1, 1, 1, 2)
    assert stored(writer.lake) == [("a", 7, 0.1), ("c", 3, 0.5), ("d", 4, None)]
    assert writer.apply(changes, ["k"], stamp(1, "refresh")) == Written(skipped=True)


def test_a_row_that_changed_since_the_difference_was_taken_is_left_alone(writer: Writer) -> None:
    writer.append(rows(("a", 2, None), ("b", 2, None), ("c", 2, None), ("e", 1, 1.0)), stamp(1))
    changes = difference(
        ("update", ("a", 9, None), ("a", 1, None)),
        ("delete", ("b", 1, None), ("b", 1, None)),
        ("insert", ("c", 9, None), None),
        ("update", ("d", 9, None), ("d", 1, None)),
        ("delete", ("f", 1, None), ("f", 1, None)),
        ("update", ("e", 9, 1.0), ("e", 1, 1.0)),
    )
    written = writer.apply(changes, ["k"], stamp(1, "refresh"))
    assert (written.inserted, written.updated, written.deleted) == (0, 1, 0)
    assert stored(writer.lake) == [("a", 2, None), ("b", 2, None), ("c", 2, None), ("e", 9, 1.0)]


def test_an_insert_takes_the_place_of_a_lesser_row_of_its_key_where_that_is_asked_for(writer: Writer) -> None:
    writer.append(rows(("a", 2, 0.5), ("b", 2, 0.5), ("c", 2, None)), stamp(1))
    changes = difference(
        ("insert", ("a", 3, None), None), ("insert", ("b", 1, 9.0), None), ("insert", ("c", 2, 0.0), None)
    )
    written = writer.apply(changes, ["k"], stamp(1, "refresh"), greatest=["n", "x"])
    assert (written.inserted, written.updated, written.deleted) == (0, 2, 0)
    assert stored(writer.lake) == [("a", 3, None), ("b", 2, 0.5), ("c", 2, 0.0)]
    lesser = difference(("insert", ("b", 1, 9.0), None))
    assert writer.apply(lesser, ["k"], stamp(2, "refresh"), greatest=["n", "x"]).is_nothing


def test_rows_that_do_not_fit_name_their_columns(writer: Writer) -> None:
    wrong = rows(("a", 1, None)).rename_columns(["k", "count", "x"])
    attempts: list[Callable[[], object]] = [
        lambda: writer.append(wrong, stamp(1)),
        lambda: writer.upsert(wrong, ["k"], stamp(1)),
        lambda: writer.apply(wrong, ["k"], stamp(1)),
    ]
    for attempt in attempts:
        with pytest.raises(
            SchemaMismatch, match=r"plant\.counts: missing columns: .*\bn\b.*; unexpected columns: count"
        ):
            attempt()
    assert stored(writer.lake) == []


def test_two_rows_of_one_key_are_refused(settings: Settings) -> None:
    lake = Lake(settings)
    lake.ensure(NAME, SCHEMA, statistics=["k"])
    with pytest.raises(QualityFailed, match=r"have the key \{'k': 'b'\}"):
        Writer(lake, NAME).upsert(rows(("a", 1, None), ("b", 1, None), ("b", 2, None)), ["k"], stamp(1))
    assert stored(lake) == []


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
        lake = Lake(replace(settings, engine=engine, small_rows=bound))
        collected = Writer(lake, NAME, spark).collect(spark.range(3))
        assert isinstance(collected, expected)


@pytest.mark.spark
def test_racing_writers_of_both_engines_lose_nothing_and_repeat_nothing(
    spark: SparkSession, settings: Settings
) -> None:
    Lake(settings).ensure(NAME, SCHEMA, statistics=["k"])

    def write(number: int) -> list[Written]:
        lake = Lake(replace(settings, engine="spark" if number < 2 else "delta-rs"))
        writer = Writer(lake, NAME, spark)
        done = []
        for turn in range(4):
            mine = rows((f"{number}-{turn}", number, None), (f"{number}+{turn}", number, None))
            stamped = stamp(turn, f"writer-{number}")
            done.append(writer.append(mine, stamped) if turn % 2 else writer.upsert(mine, ["k"], stamped))
            assert writer.append(mine, stamped).skipped
        return done

    with ThreadPoolExecutor(6) as pool:
        done = [written for results in pool.map(write, range(6)) for written in results]
    lake = Lake(settings)
    assert [row[0] for row in stored(lake)] == sorted(
        f"{n}{sign}{t}" for n in range(6) for t in range(4) for sign in "+-"
    )
    assert [written.inserted for written in done] == [2] * 24
    assert sorted(written.version or 0 for written in done) == list(range(1, 25))


@pytest.mark.spark
def test_of_racing_writers_with_one_stamp_one_writes(spark: SparkSession, settings: Settings) -> None:
    Lake(settings).ensure(NAME, SCHEMA, statistics=["k"])

    def write(number: int) -> Written:
        lake = Lake(replace(settings, engine="spark" if number < 2 else "delta-rs"))
        return Writer(lake, NAME, spark).append(rows(("a", number, None)), stamp(1))

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(write, range(6)))
    assert sorted(written.skipped for written in done) == [False] + [True] * 5
    assert len(stored(Lake(settings))) == 1


def test_racing_merges_of_the_same_rows_end_in_one_of_them(settings: Settings) -> None:
    lake = Lake(replace(settings, engine="delta-rs"))
    lake.ensure(NAME, SCHEMA, statistics=["k"])

    def write(number: int) -> None:
        for turn in range(3):
            Writer(lake, NAME).upsert(
                rows(("a", 10 * turn + number, None)), ["k"], stamp(turn, f"writer-{number}"), greatest=["n"]
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert stored(lake) == [("a", 23, None)]


CHILD = """
import sys
from pathlib import Path
import pyarrow as pa
from infra.settings import Settings
from tables.lake import Lake
from tables.writer import Stamp, Writer

writer = Writer(Lake(Settings(home=Path(sys.argv[1]), engine="delta-rs")), "plant.counts")
print("ready", flush=True)
for number in range(40):
    rows = pa.table({"k": [str(number)], "n": [number], "x": [None]}, schema=pa.schema(
        [("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())]))
    if number % 2:
        writer.append(rows, Stamp(app="append", version=number))
    else:
        writer.upsert(rows, ["k"], Stamp(app="upsert", version=number))
print("done", flush=True)
"""


def test_a_writer_that_is_killed_again_and_again_writes_everything_once(settings: Settings) -> None:
    lake = Lake(settings)
    lake.ensure(NAME, SCHEMA, statistics=["k"])
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance, killed = random.Random(seed), 0

    def run(kill_after_s: float | None) -> str:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(settings.home)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            child.send_signal(signal.SIGKILL)
        return child.communicate()[0]

    for _ in range(4):
        killed += run(chance.uniform(0.0, 0.15)) == ""
    assert run(None) == "done\n"
    assert killed >= 2
    assert sorted(row[1] for row in stored(lake)) == list(range(40))


@pytest.mark.spark
def test_a_stream_reads_every_appended_row_once_whoever_wrote_it(
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
        lake.tidy(NAME)
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


def test_spark_rows_without_a_session_are_refused(settings: Settings) -> None:
    lake = Lake(replace(settings, engine="spark"))
    lake.ensure(NAME, SCHEMA, statistics=["k"])
    with pytest.raises(RuntimeError, match="without a session"):
        Writer(lake, NAME).append(rows(("a", 1, None)), stamp(1))


@pytest.fixture(autouse=True)
def _no_leftover_streams(request: pytest.FixtureRequest) -> Iterator[None]:
    """A stream that failed in a test must not reach into the next."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()
