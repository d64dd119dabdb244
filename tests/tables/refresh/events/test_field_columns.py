"""Columns by path, under another name, with defaults, from the key and from headers."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from tests.infra.encodings.subjects import decoded
from tests.tables.declared import a_topic
from twofold import field, header, key
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.metadata_columns import REST
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import Decoded, Decoder, raw_columns

SCHEMA = {
    "id": "string",
    "at": field("payload.created", "timestamp"),
    "login": field("actor.login", "string?"),
    "stars": field("payload.repo.stars", "int", default=0),
    "sort": field("type", "string", default="none"),
    "who": key("string"),
    "trace": header("trace-id"),
}
RECORD = {
    "id": "a",
    "actor": {"login": "ann", "id": 7},
    "payload": {"created": "2013-01-01T10:00:00Z", "repo": {"stars": 5}},
    "type": "push",
}


def topic(schema: Mapping[str, str] = SCHEMA, **changes: Any) -> Topic:
    given = {"event_time": "at", "message_key": "id", "dedup_keys": ["id"], "max_future_skew": None}
    return a_topic(schema=schema, **{**given, "unknown_fields": "keep", **changes})


def read(record: Any, of: Topic | None = None, **columns: Any) -> Decoded:
    result = decoded(of or topic(), json.dumps(record).encode(), **columns)
    result.accepted.validate(full=True)
    return result


def test_fields_are_taken_by_their_paths() -> None:
    headers = [
        [{"key": "trace-id", "value": b"1"}, {"key": "other", "value": b"3"}, {"key": "trace-id", "value": b"2"}]
    ]
    [row] = read(RECORD, headers=headers).accepted.to_pylist()
    found = {name: row[name] for name in ("id", "login", "stars", "sort", "who", "trace", REST)}
    assert found == {
        "id": "a",
        "login": "ann",
        "stars": 5,
        "sort": "push",
        "who": "k",
        "trace": "2",
        REST: '{"actor":{"id":7}}',
    }
    assert row["at"].isoformat() == "2013-01-01T10:00:00+00:00"


@pytest.mark.parametrize("repo", [{}, {"repo": None}, {"repo": {}}, {"repo": {"stars": None}}])
def test_a_default_replaces_what_is_absent_or_null(repo: dict[str, Any]) -> None:
    result = read({"id": "a", "payload": {"created": "2013-01-01T10:00:00Z", **repo}, "type": None})
    [row] = result.accepted.to_pylist()
    assert (row["stars"], row["sort"], row["login"], row["trace"]) == (0, "none", None, None)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({**RECORD, "payload": {}}, "Object missing required field `created` at `payload`"),
        ({**RECORD, "actor": {"login": 5}}, "Expected `str | null`, got `int` at `actor.login`"),
        ({"id": "a"}, "Object missing required field `payload`"),
    ],
)
def test_a_reason_names_the_path_of_the_record(record: Any, reason: str) -> None:
    assert read(record).rejected["reasons"].to_pylist() == [[reason]]


def test_keys_and_headers_that_do_not_fit_are_reasons() -> None:
    of = topic({**SCHEMA, "trace": header("trace-id", "string")})
    headers = [None, [{"key": "trace-id", "value": b"\xff"}]]
    value = json.dumps(RECORD).encode()
    assert decoded(of, value, value, headers=headers).rejected["reasons"].to_pylist() == [
        ["no header trace-id: expected `string` at `trace`"],
        ["the header trace-id is not UTF-8: expected `string` at `trace`"],
    ]


def test_a_topic_without_headers_does_not_read_them() -> None:
    assert "headers" not in raw_columns(topic({"id": "string", "at": "timestamp", "who": key()}))
    assert "headers" in raw_columns(topic())


def test_a_field_keeps_its_place_over_a_pickle() -> None:
    of = pickle.loads(pickle.dumps(Decoder(topic())))
    assert read(RECORD, of.topic).accepted["login"].to_pylist() == ["ann"]
    assert repr(of.topic.schema["stars"]) == "field('payload.repo.stars', 'int', default=0)"
    assert pa.types.is_int32(read(RECORD, of.topic).accepted["stars"].type)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"actor": "struct<id: long>"}, "actor takes the field actor, of which another column takes"),
        ({"again": field("actor.login", "string?")}, "again takes the field actor.login"),
        ({"within": field("id.x", "string?")}, "within takes the field id.x"),
        ({"who": key("long")}, "expected 'string' or 'binary'"),
        ({"odd": field("a..b", "string")}, "expected names with dots between"),
        ({"odd": field("b", "int?", default=1)}, "expected a default of the type"),
        ({"odd": field("b", "int", default=True)}, "expected a default of the type"),
        ({"odd": field("b", "array<int>", default="x")}, "expected a default of the type"),
    ],
)
def test_a_field_that_cannot_be_meant_is_refused(more: dict[str, str], message: str) -> None:
    with pytest.raises(BadDeclaration, match=message):
        topic({**SCHEMA, **more})
