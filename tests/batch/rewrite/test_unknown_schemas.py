"""Records of an unknown schema stay in quarantine; once its file is there, they reach every table, once."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from tests.infra.encodings.subjects import framed, write_schemas
from tests.plant import hour, plant
from tests.rewrites import redrive
from twofold.batch.offset_selection import OffsetSelection
from twofold.infra.encodings import schema_files
from twofold.infra.encodings.schema_files import Schema
from twofold.infra.project.settings import Settings
from twofold.tables.declare.encodings import ENCODINGS
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAME = "plant.readings"
TOPIC_FILE = '''\
"""Readings of sensors."""
from twofold import Topic

TOPIC = Topic(
    encoding="{encoding}", subject="readings", event_time="read_at", message_key="sensor", dedup_keys=["sensor"]
)
'''
FIELDS: list[dict[str, Any]] = [
    {"name": "sensor", "type": "string"},
    {"name": "read_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "value", "type": ["null", "double"]},
]
UNIT = {"name": "unit", "type": ["null", "string"], "default": None}
AVRO = {
    number: json.dumps({"type": "record", "name": "Reading", "fields": fields})
    for number, fields in ((1, FIELDS), (2, [UNIT, *FIELDS]))
}
HEAD = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Reading { string sensor = 1; '
PROTOBUF = {
    1: HEAD + "google.protobuf.Timestamp read_at = 2; optional double value = 3; }",
    2: HEAD + "google.protobuf.Timestamp read_at = 2; optional double value = 3; optional string unit = 4; }",
}
TEXTS = {"avro": AVRO, "protobuf": PROTOBUF}


def record(encoding: str, schema: int, at: float, value: float) -> bytes:
    """What the encodings' own libraries write."""
    fields = {"sensor": "a", "read_at": hour(at), "value": value, **({"unit": "C"} if schema == 2 else {})}
    if encoding == "avro":
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(AVRO[schema])), fields)
        return out.getvalue()
    from google.protobuf.message_factory import GetMessageClass

    from twofold.infra.encodings.protobuf.protobuf_schema import message_of

    message = GetMessageClass(message_of(Schema(PROTOBUF[schema])))(**fields)
    return bytes(message.SerializeToString())


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_records_of_an_unknown_schema_reach_every_table_once_it_is_known(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    if encoding == "protobuf":
        pytest.importorskip("grpc_tools")
    monkeypatch.setattr(schema_files, "FOLDER", tmp_path)
    between = b"\x00" if encoding == "protobuf" else b""
    write_schemas(tmp_path, "readings", ENCODINGS[encoding].schema_suffix, {1: TEXTS[encoding][1]})

    def declared(folder: str) -> Registry:
        return plant(tmp_path / folder, readings=TOPIC_FILE.format(encoding=encoding))

    world = World(spark, settings, "plant", declared("then"))
    framed_2 = framed(2, record(encoding, 2, 0.25, 2.0), between)
    bare_2 = record(encoding, 2, 0.5, 4.0)
    known = [framed(1, record(encoding, 1, at, 1.0), between) for at in (0.1, 9)]
    world.append({NAME: [known[0], framed_2]})
    world.append({NAME: [bare_2]}, headers=[("__value_schema_id", framed(2, b"", between))])
    world.append({NAME: [known[1]]})
    world.maintain(world.all_tables)

    refused = sorted(world.rows(f"{NAME}_quarantine").to_pylist(), key=lambda row: row["_offset"])
    assert [(row["_offset"], row["value"], row["headers"]) for row in refused] == [
        (1, framed_2, None),
        (2, bare_2, [{"key": "__value_schema_id", "value": framed(2, b"", between)}]),
    ]
    assert {tuple(row["reasons"]) for row in refused} == {("the schema 2 is unknown: schemas/readings has 1",)}

    def totals() -> dict[Any, Any]:
        return {row["hour"]: row["total"] for row in world.rows("plant.hours").to_pylist()}

    assert totals() == {hour(0): 1.0, hour(9): 1.0}

    write_schemas(tmp_path, "readings", ENCODINGS[encoding].schema_suffix, {2: TEXTS[encoding][2]})
    world = World(spark, settings, "plant", declared("now"), world.log)
    platform = Platform(spark, world.lake, world.registry)

    def redriven() -> list[Any]:
        return redrive(platform, world.registry.topics[NAME], OffsetSelection(), "is unknown")

    into, out_of, *below = redriven()
    assert (into.inserted, into.changed, out_of.deleted, out_of.changed) == (2, 2, 2, 2)
    assert {outcome.table for outcome in below if outcome.changed} == {"plant.hours", "plant.kept"}
    assert world.rows(f"{NAME}_quarantine").num_rows == 0
    events = sorted(world.rows(NAME).to_pylist(), key=lambda row: row["_offset"])
    assert [(row["_offset"], row["value"], row["unit"], row["_replayed"]) for row in events] == [
        (0, 1.0, None, False),
        (1, 2.0, "C", True),
        (2, 4.0, "C", True),
        (3, 1.0, None, False),
    ]
    assert totals() == {hour(0): 7.0, hour(9): 1.0}

    world.maintain(world.all_tables)
    assert [o for o in world.reconcile(world.all_tables) if o.changed] == []
    versions = {name: world.lake.version(name) for name in world.lake.names()}
    assert [o for o in redriven() if o.changed or o.files_written] == []
    assert {name: world.lake.version(name) for name in world.lake.names()} == versions
