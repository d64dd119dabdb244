"""Records with structure, from their bytes to Delta and back, by both engines."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from tests.streaming.ingest.small_log import APPENDED, BAD, SmallLog
from tests.tables.declared import a_topic
from twofold import header
from twofold.batch.audit.hash_buckets import compare_groups
from twofold.infra.delta.lake import Lake
from twofold.infra.rows.rows import is_empty
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET
from twofold.tables.refresh.events.record_decoder import (
    accepted,
    decode_frame,
    events_schema,
    for_workers,
    reject_frame,
    rejected,
)
from twofold.tables.refresh.row_diff import difference
from twofold_archive.format.record_columns import HEADERS, HEADERS_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPIC = a_topic(
    schema={
        "sensor": "string",
        "read_at": "timestamp",
        "payload": "struct<n: long, parts: array<struct<sha: string, at: timestamp?, local: timestamp_ntz?>>?>?",
        "labels": "map<string,double>?",
        "price": "decimal(12,3)?",
        "icon": "binary?",
        "extra": "json?",
    },
    unknown_fields="keep",
)


def push(second: int, **fields: Any) -> bytes:
    read_at = APPENDED - timedelta(hours=1) + timedelta(seconds=second)
    part = {"sha": "f00", "at": "2012-12-31T10:00:00.000001+02:00", "local": "2012-12-31T10:00:00.000001"}
    whole = {
        "payload": {"n": second, "parts": [part, {"sha": "f01", "url": "u"}]},
        "labels": {"b": 2.5, "a": 1},
        "price": "1.250",
        "icon": "AAH/",
        "extra": {"deep": [1, {"er": None}]},
    }
    return json.dumps({"sensor": "a", "read_at": read_at.isoformat(), **whole, **fields}).encode()


def test_nested_records_are_kept_by_both_engines_and_replayed_equal(lake: Lake, spark: SparkSession) -> None:
    empty = {"payload": None, "labels": None, "price": None, "icon": None, "extra": None}
    values = [push(0), push(1, **empty), BAD, push(3, payload={"n": "3"}), push(4, kind="new"), push(5, labels={})]
    log = SmallLog(lake, TOPIC, {0: values})
    log.take(log.driver(), {0: (0, 3)})
    log.take(log.driver(spark=spark), {0: (3, 6)}, spark)
    assert log.faults({0: 6}) == []
    assert log.rejected == [(0, 2), (0, 3)]

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("events", lake.open(TOPIC.full_name).to_pyarrow_table())
        found = connection.sql(
            "SELECT _offset, payload.n, payload.parts[1].at::VARCHAR, payload.parts[1].local::VARCHAR, labels['b'], "
            "price::VARCHAR, hex(icon), extra, _rest FROM events ORDER BY _offset"
        ).fetchall()
    whole = ("2012-12-31 08:00:00.000001+00", "2012-12-31 10:00:00.000001", 2.5, "1.250", "0001FF")
    extra, rest = '{"deep": [1, {"er": null}]}', '{"payload":{"parts":{"1":{"url":"u"}}}}'
    assert found == [
        (0, 0, *whole, extra, rest),
        (1, None, None, None, None, None, None, None, None),
        (4, 4, *whole, extra, '{"payload":{"parts":{"1":{"url":"u"}}},"kind":"new"}'),
        (5, 5, *whole[:2], None, *whole[3:], extra, rest),
    ]

    from pyspark.sql import functions as F

    again = accepted(decode_frame(spark.createDataFrame(log.raw({0: (0, 6)})), TOPIC, None), TOPIC)
    live = lake.frame(spark, TOPIC.full_name)
    compared = [name for name in events_schema(TOPIC).names if name not in (OFFSET, LATE_BY_MS)]
    assert is_empty(difference(again, live, [OFFSET], compared))
    assert [group.is_equal for group in compare_groups(again, live, {"one": F.lit(0)}, compared)] == [True]


def test_workers_get_no_null_list_of_headers(lake: Lake, spark: SparkSession) -> None:
    topic = a_topic(schema={"sensor": "string", "read_at": "timestamp", "trace": header("trace", "string?")})
    log = SmallLog(lake, topic, {0: [BAD, BAD]})
    headers = [None, [{"key": "trace", "value": b"t"}]]
    raw = spark.createDataFrame(log.raw({0: (0, 2)}).append_column(HEADERS, pa.array(headers, HEADERS_TYPE)))

    def headers_of(frame: Any) -> list[Any]:
        return frame.select(HEADERS).toArrow()[HEADERS].to_pylist()

    assert headers_of(for_workers(raw, topic)) == [[], headers[1]]
    assert headers_of(rejected(decode_frame(raw, topic, None))) == headers
    assert headers_of(reject_frame(raw, topic)) == headers
