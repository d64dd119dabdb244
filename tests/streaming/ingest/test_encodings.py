"""Records of each encoding, of the shapes that systems really send, from raw bytes to rows that DuckDB reads."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.infra.encodings.subjects import framed, write_schemas
from tests.streaming.ingest.small_log import APPENDED, SmallLog
from tests.tables.declared import bound_as
from twofold import field, key
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.duckdb_session import query
from twofold.infra.encodings import schema_files
from twofold.infra.project.settings import Settings
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import Decoder
from twofold_archive.format.record_columns import HEADERS_TYPE

AT = APPENDED - timedelta(hours=1)
PUSH = {
    "id": "p1",
    "type": "PushEvent",
    "actor": {"id": 7, "login": "ann", "avatar": None},
    "repository": {"name": "x/y", "topics": ["a", "b"], "license": {"key": "mit"}},
    "commits": [
        {"sha": "f00", "author": {"name": "Ann"}, "added": ["a.py"], "removed": []},
        {"sha": "f01", "author": {"name": "Bo"}, "added": [], "removed": ["b.py"]},
    ],
    "created_at": AT.isoformat(),
}
WEBHOOKS = bound_as(
    Topic(
        schema={
            "id": "string",
            "kind": field("type", "string"),
            "login": field("actor.login", "string"),
            "created_at": "timestamp",
            "commits": "array<struct<sha: string, author: struct<name: string>, added: array<string>>>",
            "repository": "struct<name: string, topics: array<string>>",
            "delivered_as": key("string"),
        },
        event_time="created_at",
        message_key="delivered_as",
        dedup_keys=["id"],
        unknown_fields="keep",
    ),
    "webhooks",
)
CUSTOMER = "struct<id: long, name: string?, balance: decimal(12,2)?, tags: json?>?"
CHANGES = bound_as(
    Topic(
        schema={
            "before": CUSTOMER,
            "after": CUSTOMER,
            "op": "string",
            "changed_at": field("source.at", "timestamp"),
            "sequence": field("source.sequence", "string"),
            "lsn": field("source.lsn", "long?"),
        },
        event_time="changed_at",
        message_key="sequence",
        dedup_keys=["sequence"],
        unknown_fields="ignore",
    ),
    "customers",
)


def ingested(tmp_path: Path, topic: Topic, *values: bytes) -> SmallLog:
    """A log of these records, the last of which is no record, ingested."""
    log = SmallLog(Lake(Settings(home=tmp_path / "home")), topic, {0: [*values]})
    raw = log.raw({0: (0, len(values))})
    if topic.reads_headers:
        raw = raw.append_column("headers", pa.nulls(len(raw), HEADERS_TYPE))
    log.driver().take(raw, {0: (0, len(values))})
    assert log.faults({0: len(values)}) == []
    assert log.rejected == [(0, len(values) - 1)]
    return log


def found(log: SmallLog, sql: str) -> list[tuple[Any, ...]]:
    rows = query(sql, events=log.lake.open(log.name).scan()).to_pylist()
    return [tuple(row.values()) for row in rows]


def test_a_webhook_is_queried_at_every_depth(tmp_path: Path) -> None:
    bad = {**PUSH, "commits": [PUSH["commits"][0], {"sha": 5}]}  # type: ignore[index]
    log = ingested(tmp_path, WEBHOOKS, json.dumps(PUSH).encode(), json.dumps(bad).encode())
    assert found(
        log,
        """SELECT login, kind, delivered_as, repository.name, len(repository.topics), commits[2].author.name,
        _rest->>'$.repository.license.key', _rest->>'$.commits.1.removed[0]' FROM events""",
    ) == [("ann", "PushEvent", "a", "x/y", 2, "Bo", "mit", "b.py")]
    reasons = query("SELECT reasons FROM bad", bad=log.lake.open(log.name + QUARANTINE).scan()).to_pylist()
    assert reasons == [{"reasons": ["Expected `str`, got `int` at `commits[1].sha`"]}]


def test_a_change_of_a_database_is_read_with_its_images(tmp_path: Path) -> None:
    after = {"id": 1, "name": "Ann", "balance": "10.50", "tags": {"b": 1.10}, "new_column": 5}
    source = {"at": AT.isoformat(), "sequence": '["1","2"]', "lsn": 2**40, "db": "shop"}
    created = {"before": None, "after": after, "op": "c", "source": source, "transaction": None}
    deleted = {"before": {**after, "balance": None}, "after": None, "op": "d", "source": {**source, "sequence": "3"}}
    rounded = {**created, "after": {**after, "balance": "10.505"}}
    log = ingested(tmp_path, CHANGES, *(json.dumps(r).encode() for r in (created, deleted, rounded)))
    assert found(
        log, "SELECT op, after.balance::VARCHAR, after.tags, before.name, lsn FROM events ORDER BY sequence DESC"
    ) == [("c", "10.50", '{"b": 1.1}', None, 2**40), ("d", None, None, "Ann", 2**40)]


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_records_with_schemas_are_ingested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """The last record has an id that is unknown; once its file is there, it is a record as well."""
    monkeypatch.setattr(schema_files, "FOLDER", tmp_path)
    commit = {"type": "record", "name": "Commit", "fields": [{"name": "sha", "type": "string"}]}
    avro = {
        "type": "record",
        "name": "Push",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "commits", "type": {"type": "array", "items": commit}},
        ],
    }
    proto = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
    message Push { string id = 1; google.protobuf.Timestamp at = 2;
      message Commit { string sha = 1; } repeated Commit commits = 3; }"""
    if encoding == "avro":
        out = io.BytesIO()
        fastavro.schemaless_writer(
            out, fastavro.parse_schema(avro), {"id": "p1", "at": AT, "commits": [{"sha": "f00"}]}
        )
        record, between, text, suffix = out.getvalue(), b"", json.dumps(avro), ".avsc"
    else:
        pytest.importorskip("grpc_tools")
        seconds = int(AT.timestamp())
        varint = bytes([seconds & 127 | 128, seconds >> 7 & 127 | 128, seconds >> 14 & 127 | 128])
        varint += bytes([seconds >> 21 & 127 | 128, seconds >> 28])
        record, between = b"\x0a\x02p1\x12\x06\x08" + varint + b"\x1a\x05\x0a\x03f00", b"\x00"
        text, suffix = proto, ".proto"
    write_schemas(tmp_path, "pushes", suffix, {1: text})
    topic = bound_as(
        Topic(encoding=encoding, subject="pushes", event_time="at", message_key="id", dedup_keys=["id"]),  # type: ignore[arg-type]
        "pushes",
    )
    log = ingested(tmp_path, topic, framed(1, record, between), framed(2, record, between))
    assert found(log, 'SELECT id, "at", commits[1].sha FROM events') == [("p1", AT, "f00")]
    bad = query("FROM bad", bad=log.lake.open(log.name + QUARANTINE).scan())
    assert bad["reasons"].to_pylist() == [["the schema 2 is unknown: schemas/pushes has 1"]]
    assert bad["value"].to_pylist() == [framed(2, record, between)]
    write_schemas(tmp_path, "pushes", suffix, {2: text})
    again = bad.select(["_partition", "_offset", "_appended_at", "key", "value", "headers"])
    again = again.rename_columns(["partition", "offset", "timestamp", "key", "value", "headers"])
    assert Decoder(replace(topic)).decode(again, None).accepted["id"].to_pylist() == ["p1"]
