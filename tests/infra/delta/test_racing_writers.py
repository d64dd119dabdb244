"""Writers of both engines that race, or are killed, lose nothing and write nothing twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests import ROOT
from tests.infra.delta.counts import NAME, SCHEMA, rows, stamp, stored
from twofold.infra.delta.delta_writer import Writer, Written
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def test_racing_merges_of_rows_by_time_are_all_found(settings: Settings) -> None:
    lake = Lake(replace(settings, engine="delta-rs"))
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
    lake.ensure(NAME, schema, statistics=["at"])
    hours = [datetime(2013, 1, 1, hour, 0, 0, 123456, tzinfo=UTC) for hour in range(6)]

    def write(number: int) -> None:
        for turn in range(3):
            mine = rows(*((at, 10 * turn + number) for at in hours[turn : turn + 4]), schema=schema)
            Writer(lake, NAME).upsert(mine, ["at"], stamp(turn, f"writer-{number}"), greatest=["n"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert stored(lake) == list(zip(hours, [3, 13, 23, 23, 23, 23], strict=True))


CHILD = """
import sys
from pathlib import Path
import pyarrow as pa
from twofold.infra.project.settings import Settings
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.delta_writer import CommitTag, Writer

writer = Writer(Lake(Settings(home=Path(sys.argv[1]), engine="delta-rs")), "plant.counts")
print("ready", flush=True)
for number in range(40):
    rows = pa.table({"k": [str(number)], "n": [number], "x": [None]}, schema=pa.schema(
        [("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())]))
    if number % 2:
        writer.append(rows, CommitTag(app="append", version=number))
    else:
        writer.upsert(rows, ["k"], CommitTag(app="upsert", version=number))
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
