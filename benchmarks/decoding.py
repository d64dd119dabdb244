"""Records per second from JSON to typed columns: the decoder with all its checks against Spark's `from_json`."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.measuring.figures import report, spread
from infra.settings import ROOT, Settings
from infra.spark.spark_session import session
from tables.engine.declarations.declaration import Topic
from tables.engine.events.record_decoder import RAW_SCHEMA, decode_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NESTED = Topic(
    schema={
        "id": "string",
        "created_at": "timestamp",
        "actor": "struct<id: long, login: string, url: string?>",
        "payload": "struct<push_id: long, ref: string, commits: array<struct<sha: string, message: string, "
        "author: struct<email: string, name: string>, is_distinct: boolean>>>",
        "is_public": "boolean",
    },
    event_time="created_at",
    message_key="id",
    dedup_keys=["id"],
    unknown_fields="keep",
    domain="events",
    name="pushes",
)
FLAT = Topic(
    schema={
        "id": "string",
        "kind": "string",
        "carrier": "string",
        "number": "int",
        "origin": "string",
        "destination": "string",
        "scheduled_at": "timestamp",
        "occurred_at": "timestamp",
        "delay_min": "int?",
    },
    event_time="occurred_at",
    message_key="id",
    dedup_keys=["id"],
    domain="events",
    name="departures",
)
TOPICS = {"nested": NESTED, "flat": FLAT}
START = datetime(2013, 1, 1, tzinfo=UTC)


def nested_record(number: int, chance: random.Random) -> dict[str, object]:
    """About a kilobyte: three commits of a push."""
    commits = [
        {
            "sha": f"{chance.getrandbits(160):040x}",
            "message": f"Change {chance.randrange(10**9)} " + "of this and of that " * 5,
            "author": {"email": f"a{number}@example.org", "name": f"Author {number}"},
            "is_distinct": chance.random() < 0.5,
        }
        for _ in range(3)
    ]
    return {
        "id": str(number),
        "created_at": f"{START + timedelta(seconds=number):%Y-%m-%dT%H:%M:%SZ}",
        "actor": {"id": number, "login": f"user-{number}", "url": f"users/{number}"},
        "payload": {"push_id": number, "ref": "refs/heads/main", "commits": commits},
        "is_public": True,
    }


def flat_record(number: int, chance: random.Random) -> dict[str, object]:
    """A departure of the size that those of `flights` have."""
    moment = f"{START + timedelta(seconds=number):%Y-%m-%dT%H:%M:%SZ}"
    return {
        "id": f"UA{number}",
        "kind": "departed",
        "carrier": "UA",
        "number": number % 9_000,
        "origin": "EWR",
        "destination": "ORD",
        "scheduled_at": moment,
        "occurred_at": moment,
        "delay_min": chance.randrange(-20, 200),
    }


def raw(make: Callable[[int, random.Random], dict[str, object]], records: int) -> pa.Table:
    chance = random.Random(7)
    values = [json.dumps(make(number, chance), separators=(",", ":")).encode() for number in range(records)]
    columns = [[0] * records, range(records), [START + timedelta(days=365)] * records, [b"k"] * records, values]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)


def by_spark(source: DataFrame, topic: Topic) -> DataFrame:
    """The same columns by `from_json`, which checks nothing and makes null what does not fit."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(pa.schema([pa.field(name, kind.arrow) for name, kind in topic.types.items()]))
    record = F.from_json(F.col("value").cast("string"), schema).alias("record")
    return source.select("partition", "offset", "timestamp", record).select("*", "record.*").drop("record")


def per_second(frame: DataFrame, records: int) -> float:
    earlier = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return records / (time.monotonic() - earlier)


def race(spark: SparkSession, name: str, records: int, rounds: int) -> dict[str, object]:
    """Records per second of both ways, in turns."""
    topic, make = TOPICS[name], {"nested": nested_record, "flat": flat_record}[name]
    table = raw(make, records)
    place = str(ROOT / ".twofold" / "benchmark-decoding" / name)
    spark.createDataFrame(table).coalesce(1).write.mode("overwrite").parquet(place)
    source = spark.read.parquet(place)
    ways = {"ours": decode_frame(source, topic, None), "from_json": by_spark(source, topic)}
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, frame in ways.items():
            speed = per_second(frame, records)
            if number:  # the first round warms both
                found[way].append(speed)
    ratios = [ours / theirs for ours, theirs in zip(found["ours"], found["from_json"], strict=True)]
    size = table["value"].nbytes / records
    return {
        f"{name}: bytes a record": size,
        **{f"{name}: {way}, records/s": spread(speeds) for way, speeds in found.items()},
        f"{name}: ratio": spread(ratios),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    home = ROOT / ".twofold" / "benchmark-decoding"
    spark = session(Settings(home=home, spark_master="local[1]", shuffle_partitions=1), "decoding")
    figures: dict[str, object] = {}
    try:
        for name in TOPICS:
            figures |= race(spark, name, args.records, args.rounds)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    claims = {
        f"{name} records are decoded as fast as by from_json": figures[f"{name}: ratio"]["median"] >= 1  # type: ignore[index]
        for name in TOPICS
    }
    return 0 if report("decoding", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
