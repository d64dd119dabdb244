"""A captured table is declared by its columns; what cannot be exact is refused when the file is loaded."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.loaded_modules import loading_none_of
from tests.tables.declared import bound_as, written
from twofold.features.capture.captured_topic import captures, changes_of, outbox_of
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import Decoder
from twofold_archive.format.record_columns import HEADERS, HEADERS_TYPE

COLUMNS = {"id": "long", "name": "string"}


def registry(topic: Topic) -> Registry:
    return Registry({topic.full_name: topic}, {})


def test_declarations_load_no_code_of_servers() -> None:
    loading_none_of(
        {"twofold.features.capture.kafka_connect", "twofold.infra.process.supervisor", "urllib.request", "xmlrpc"},
        "import twofold.tables",
    )


def test_all_columns_but_the_key_may_be_null() -> None:
    topic = changes_of("public.people", columns={**COLUMNS, "tags": "array<int>"}, primary_key=["id"])
    assert {name: topic.schema[name] for name in ("id", "name", "tags")} == {
        "id": "long",
        "name": "string?",
        "tags": "array<int?>?",
    }
    assert (topic.partitions, topic.unknown_fields, topic.event_time) == (1, "keep", "cdc_at")


def test_a_capture_is_named_after_its_topic() -> None:
    topic = bound_as(changes_of("public.people", columns=COLUMNS, primary_key=["id"]), "people", "bank")
    [capture] = captures(registry(topic))
    assert (capture.name, capture.topic, capture.table) == ("twofold_1_bank_people", "bank.people", "public.people")


CAPTURED = '''\
"""Changes of the people."""
from twofold import changes_of

TOPIC = changes_of("public.people", columns={"id": "long"}, primary_key=["id"])
'''


def test_only_a_name_that_is_too_long_for_a_slot_is_left_out(tmp_path: Path) -> None:
    """A slot has 63 letters, `twofold_100_` takes 12 of them."""
    long, longest = "p" * 47, "p" * 46
    found = load(written(tmp_path, {f"bank/{long}.py": CAPTURED, f"bank/{longest}.py": CAPTURED}))
    assert list(found.topics) == [f"bank.{longest}"]
    assert [*found.faults] == [f"bank.{long}"]
    assert f"{long}.py" in str(found.faults[f"bank.{long}"])
    assert "has 52 letters; expected at most 51" in str(found.faults[f"bank.{long}"])
    assert [len(replace(capture, snapshot=100).name) for capture in captures(found)] == [63]


def test_captures_that_would_share_a_slot_are_left_out(tmp_path: Path) -> None:
    """Also the first of them: the other one may be what the slot is used for now."""
    names = ("a/b_c.py", "a_b/c.py", "a/b.py")
    found = load(written(tmp_path, dict.fromkeys(names, CAPTURED)))
    assert list(found.topics) == ["a.b"]
    assert [*found.faults] == ["a.b_c", "a_b.c"]
    for name, fault in found.faults.items():
        assert "a.b_c and a_b.c, which are captured, would share the replication slot twofold_1_a_b_c" in str(fault)
        assert f"{name.replace('.', '/')}.py" in str(fault)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"table": "people"}, "schema.name"),
        ({"table": "public.people; DROP TABLE people"}, "schema.name"),
        ({"primary_key": []}, "list of columns"),
        ({"primary_key": "id"}, "list of columns"),
        ({"primary_key": ["number"]}, "lacks"),
        ({"columns": {"id": "long?"}}, "never null"),
        ({"columns": {"id": "double"}}, "single exact value"),
        ({"columns": {**COLUMNS, "cdc_op": "string"}}, "those of the change"),
        ({"columns": {**COLUMNS, "prices": "array<double>"}}, "no column of a database"),
        ({"columns": {**COLUMNS, "all": "struct<a: long>"}}, "no column of a database"),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], expected: str) -> None:
    given = {"table": "public.people", "columns": COLUMNS, "primary_key": ["id"], **changes}
    with pytest.raises(BadDeclaration, match=expected):
        changes_of(given.pop("table"), **given)


EVENTS = {"table": "public.outbox", "schema": {"total": "decimal(9,2)", "at": "timestamp"}, "event_time": "at"}


def outbox(**changes: Any) -> Topic:
    given = {**EVENTS, **changes}
    return bound_as(outbox_of(given.pop("table"), **given), "orders", "shop")


def test_an_event_of_an_outbox_has_its_key_and_its_headers() -> None:
    values = [b'{"total": "1.50", "at": "2020-01-01T00:00:00Z"}', b'{"at": "2020-01-01T00:00:00Z", "total": "x"}']
    headers = [{"key": name, "value": value} for name, value in (("id", b"7"), ("type", b"sold"))]
    headers.append({"key": "aggregatetype", "value": b"order"})
    raw = pa.table(
        {
            "partition": pa.array([0, 0], pa.int32()),
            "offset": [0, 1],
            "timestamp": pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", tz="UTC")),
            "key": pa.array([b"41", b"42"]),
            "value": pa.array(values),
            HEADERS: pa.array([headers] * 2, HEADERS_TYPE),
        }
    )
    decoded = Decoder(outbox()).decode(raw, None)
    [event] = decoded.accepted.to_pylist()
    found = {name: event[name] for name in ("total", "event_id", "event_type", "aggregate_type", "aggregate_id")}
    assert found == {
        "total": Decimal("1.50"),
        "event_id": "7",
        "event_type": "sold",
        "aggregate_type": "order",
        "aggregate_id": "41",
    }
    assert decoded.rejected["key"].to_pylist() == [b"42"]
    assert [capture.is_outbox for capture in captures(registry(outbox()))] == [True]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"table": "outbox"}, "schema.name"),
        ({"schema": {"event_id": "string", "at": "timestamp"}}, "'event_id' is a column of every event"),
        ({"event_time": "total"}, "expected 'timestamp'"),
    ],
)
def test_a_mistake_in_an_outbox_is_named(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(BadDeclaration, match=expected):
        outbox(**changes)


def test_a_captured_topic_is_declared_by_changes_of_alone() -> None:
    with pytest.raises(BadDeclaration, match="captures"):
        Topic(
            encoding="debezium",
            schema={"id": "long", "at": "timestamp"},
            event_time="at",
            message_key="id",
            dedup_keys=["id"],
        )
