"""Records per second from JSON, Avro and Protobuf to typed columns: with all checks, against Spark's own functions."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from benchmarks.measuring.figures import report, spread
from tests import ROOT
from twofold.infra.encodings import schema_files
from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.protobuf.protobuf_schema import message_of
from twofold.infra.encodings.schema_files import Schema
from twofold.infra.project import jars
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, decode_frame
from twofold_archive.format.record_columns import HEADERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOME = ROOT / ".twofold" / "benchmark-decoding"


@dataclass(frozen=True)
class Race:
    """Records of one shape and encoding, and Spark's own way to decode them, where there is one."""

    name: str
    topic: Topic
    values: Sequence[bytes]
    theirs: str = ""
    by_spark: Callable[[DataFrame], DataFrame] | None = None


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
LOCK = Path(__file__).with_name("decoding.lock")
JARS = ROOT / ".twofold" / "benchmark-jars"
PROTO = {
    "flat": """string id = 1; string kind = 2; string carrier = 3; int32 number = 4; string origin = 5;
        string destination = 6; google.protobuf.Timestamp scheduled_at = 7;
        google.protobuf.Timestamp occurred_at = 8; optional int32 delay_min = 9;""",
    "nested": """string id = 1; google.protobuf.Timestamp created_at = 2; Actor actor = 3; Payload payload = 4;
        bool is_public = 5;
        message Actor { int64 id = 1; string login = 2; optional string url = 3; }
        message Author { string email = 1; string name = 2; }
        message Commit { string sha = 1; string message = 2; Author author = 3; bool is_distinct = 4; }
        message Payload { int64 push_id = 1; string ref = 2; repeated Commit commits = 3; }""",
}
START = datetime(2013, 1, 1, tzinfo=UTC)


def nested_record(number: int, chance: random.Random) -> dict[str, Any]:
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


def flat_record(number: int, chance: random.Random) -> dict[str, Any]:
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


def raw(values: Sequence[bytes]) -> pa.Table:
    """Records as an archive gives them, without headers."""
    records = len(values)
    columns = [[0] * records, range(records), [START + timedelta(days=365)] * records, [b"k"] * records, values]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)


def records_of(name: str, records: int) -> list[dict[str, Any]]:
    """Records of one shape."""
    chance, make = random.Random(7), {"nested": nested_record, "flat": flat_record}[name]
    return [make(number, chance) for number in range(records)]


def of_json(name: str, made: Sequence[dict[str, Any]]) -> Race:
    """The records as JSON."""
    topic = TOPICS[name]
    values = [json.dumps(record, separators=(",", ":")).encode() for record in made]
    return Race(f"JSON, {name}", topic, values, "from_json", partial(by_spark, topic=topic))


def of_avro(name: str, made: Sequence[dict[str, Any]]) -> Race:
    """The records as Avro, each behind the id of its schema."""
    import fastavro

    schema = _avro("Record", FieldType(name="struct", fields=tuple(TOPICS[name].types.items())))
    parsed, values = fastavro.parse_schema(schema), []
    for record in made:
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, {key: _instant(key, value) for key, value in record.items()})
        values.append(b"\0\0\0\0\1" + out.getvalue())
    text = json.dumps(schema)
    topic = _with_schema(name, "avro", ".avsc", text)
    return Race(f"Avro, {name}", topic, values, "from_avro", partial(by_from_avro, schema=text))


def of_protobuf(name: str, made: Sequence[dict[str, Any]]) -> Race:
    """The records as Protobuf; Spark's own function is in a jar that is not published for its version."""
    from google.protobuf.json_format import ParseDict
    from google.protobuf.message_factory import GetMessageClass

    text = f'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Record {{ {PROTO[name]} }}'
    message = GetMessageClass(message_of(Schema(text)))
    values = [b"\0\0\0\0\1\0" + ParseDict(record, message()).SerializeToString() for record in made]
    return Race(f"Protobuf, {name}", _with_schema(name, "protobuf", ".proto", text), values)


def _with_schema(name: str, encoding: Literal["avro", "protobuf"], suffix: str, text: str) -> Topic:
    """The topic whose one schema this is."""
    subject = f"{encoding}-{name}"
    folder = schema_files.FOLDER / subject
    folder.mkdir(parents=True)
    (folder / f"1{suffix}").write_text(text)
    like = TOPICS[name]
    return Topic(
        encoding=encoding,
        subject=subject,
        event_time=like.event_time,
        message_key="id",
        dedup_keys=["id"],
        domain="events",
        name=like.name,
    )


def _avro(name: str, kind: FieldType) -> Any:
    if kind.name == "struct":
        fields = [{"name": part, "type": _avro(f"{name}_{part}", inner)} for part, inner in kind.fields]
        found: Any = {"type": "record", "name": name, "fields": fields}
    elif kind.element is not None:
        found = {"type": "array", "items": _avro(f"{name}_item", kind.element)}
    else:
        found = {"timestamp": {"type": "long", "logicalType": "timestamp-micros"}}.get(kind.name, kind.name)
    return ["null", found] if kind.nullable else found


def _instant(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if name.endswith("_at") else value


def by_spark(source: DataFrame, topic: Topic) -> DataFrame:
    """The same columns by `from_json`, which checks nothing and makes null what does not fit."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(pa.schema([pa.field(name, kind.arrow) for name, kind in topic.types.items()]))
    record = F.from_json(F.col("value").cast("string"), schema).alias("record")
    return source.select("partition", "offset", "timestamp", record).select("*", "record.*").drop("record")


def by_from_avro(source: DataFrame, schema: str) -> DataFrame:
    """The same columns by `from_avro`, which is told the schema: it does not look at the id."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    record = from_avro(F.expr("substring(value, 6)"), schema).alias("record")
    return source.select("partition", "offset", "timestamp", record).select("*", "record.*").drop("record")


def per_second(frame: DataFrame, records: int) -> float:
    earlier = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return records / (time.monotonic() - earlier)


def race(spark: SparkSession, one: Race, rounds: int) -> dict[str, object]:
    """Records per second of both ways, in turns."""
    from pyspark.sql import functions as F

    table, records = raw(one.values), len(one.values)
    place = str(HOME / one.name)
    spark.createDataFrame(table).coalesce(1).write.mode("overwrite").parquet(place)
    source = spark.read.parquet(place)
    none = F.lit(None).cast("array<struct<key: string, value: binary>>")
    ways = {"ours": decode_frame(source.withColumn(HEADERS, none), one.topic, None)}
    if one.by_spark is not None:
        ways[one.theirs] = one.by_spark(source)
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, frame in ways.items():
            speed = per_second(frame, records)
            if number:  # the first round warms both
                found[way].append(speed)
    figures: dict[str, object] = {f"{one.name}: bytes a record": table["value"].nbytes / records}
    figures |= {f"{one.name}: {way}, records/s": spread(speeds) for way, speeds in found.items()}
    if one.by_spark is not None:
        ratios = [ours / theirs for ours, theirs in zip(found["ours"], found[one.theirs], strict=True)]
        figures[f"{one.name}: ratio"] = spread(ratios)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    shutil.rmtree(HOME, ignore_errors=True)
    pinned = jars.pinned(LOCK)
    JARS.mkdir(parents=True, exist_ok=True)
    if jars.problems(JARS, pinned):
        jars.replace(JARS, pinned)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(str(JARS / jar.path) for jar in pinned)} pyspark-shell"
    schema_files.FOLDER = HOME / "schemas"
    spark = session(Settings(home=HOME, spark_master="local[1]", shuffle_partitions=1), "decoding")
    figures: dict[str, object] = {}
    claims: dict[str, bool] = {}
    try:
        for name in TOPICS:
            made = records_of(name, args.records)
            for one in (of_json(name, made), of_avro(name, made), of_protobuf(name, made)):
                figures |= race(spark, one, args.rounds)
                ratio = figures.get(f"{one.name}: ratio")
                if isinstance(ratio, dict):
                    claims[f"{one.name}: decoded as fast as by {one.theirs}"] = ratio["median"] >= 1
    finally:
        spark.stop()
        shutil.rmtree(HOME, ignore_errors=True)
    return 0 if report("decoding", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
