"""A topic that webhooks fill: its columns, what identifies a delivery, and mistakes that are found at load."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.loaded_modules import loading_none_of
from tests.tables.declared import a_topic, bound_as, written
from twofold.features.webhooks.webhook_topic import WebhookTopic, from_webhook, webhook_topics
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.decoding_fingerprint import decoding
from twofold.tables.refresh.events.record_decoder import Decoded, Decoder
from twofold.tables.refresh.events.topic_specs import spec
from twofold_archive.format.record_columns import HEADERS, HEADERS_TYPE

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def declared(**changes: Any) -> WebhookTopic:
    given: dict[str, Any] = {"scheme": "standard", "schema": {"cents": "int"}, **changes}
    topic = bound_as(from_webhook(**given), "refunds", "shop")
    assert isinstance(topic, WebhookTopic)
    return topic


def decoded(topic: Topic, *records: tuple[bytes, dict[str, bytes]]) -> Decoded:
    rows = len(records)
    raw = pa.table(
        {
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(range(rows), pa.int64()),
            "timestamp": pa.array([NOON] * rows, pa.timestamp("us", tz="UTC")),
            "key": pa.array([b"m1"] * rows),
            "value": pa.array([body for body, _ in records]),
            HEADERS: pa.array([[{"key": k, "value": v} for k, v in h.items()] for _, h in records], HEADERS_TYPE),
        }
    )
    return Decoder(topic).decode(raw, None)


def test_a_body_without_a_time_is_dated_by_the_header() -> None:
    topic = declared()
    assert (topic.event_time, topic.same_record) == ("received_at", ("webhook_id", "received_at"))
    sent = {"webhook-id": b"m1", "webhook-received-at": b"2026-11-27T11:59:58.123456+00:00"}
    found = decoded(topic, (b'{"cents": 5, "more": [1]}', sent))
    [event] = found.accepted.select(["cents", "webhook_id", "received_at", "_rest"]).to_pylist()
    assert event == {
        "cents": 5,
        "webhook_id": "m1",
        "received_at": datetime(2026, 11, 27, 11, 59, 58, 123456, tzinfo=UTC),
        "_rest": '{"more":[1]}',
    }


@pytest.mark.parametrize("moment", [b"", b"yesterday", b"2026-11-27T11:59:58", b"\xff"])
def test_a_record_that_no_receiver_dated_is_quarantined(moment: bytes) -> None:
    found = decoded(declared(), (b'{"cents": 5}', {"webhook-id": b"m1", "webhook-received-at": moment}))
    assert found.rejected["reasons"].to_pylist() == [["Expected `timestamp`, got `null` at `received_at`"]]


def test_a_bad_body_is_quarantined_with_its_headers_and_the_others_pass() -> None:
    head = {"webhook-id": b"m1", "webhook-received-at": f"{NOON - timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}".encode()}
    found = decoded(declared(), (b'{"cents": "5"}', head), (b"[1]", head), (b'{"cents": 6}', head), (b"\x00", head))
    assert found.accepted["cents"].to_pylist() == [6]
    assert found.rejected["value"].to_pylist() == [b'{"cents": "5"}', b"[1]", b"\x00"]
    assert found.rejected[HEADERS].to_pylist()[0][0] == {"key": "webhook-id", "value": b"m1"}


def test_a_body_with_a_time_of_its_own_is_dated_by_it() -> None:
    topic = declared(schema={"at": "timestamp"}, event_time="at", scheme="github")
    assert topic.same_record == ("webhook_id", "at")
    assert not topic.is_dated_by_receiver
    found = decoded(topic, (b'{"at": "2026-11-27T11:00:00Z"}', {"webhook-id": b"m1", "x-github-event": b"push"}))
    [event] = found.accepted.select(["at", "webhook_id", "event_type"]).to_pylist()
    assert event == {"at": NOON - timedelta(hours=1), "webhook_id": "m1", "event_type": "push"}
    assert len(decoded(topic, (b'{"at": "2026-11-27T11:00:00Z"}', {})).rejected) == 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scheme": "stripe"}, "scheme='stripe': expected 'standard' or 'github'"),
        ({"schema": {"webhook_id": "string"}}, "'webhook_id' is a column that the receiver of webhooks fills"),
        ({"schema": {"received_at": "timestamp"}, "event_time": "received_at"}, "'received_at' is a column"),
        ({"scheme": "github", "schema": {"event_type": "string"}}, "'event_type' is a column"),
        ({"event_time": "cents"}, "expected 'timestamp'"),
        ({"event_time": "at"}, "event_time names at"),
        ({"idle_timeout": "soon"}, "idle_timeout"),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(BadDeclaration, match=expected):
        declared(**changes)


def test_a_scheme_that_changes_decodes_no_record_otherwise() -> None:
    timed: dict[str, Any] = {"schema": {"at": "timestamp"}, "event_time": "at"}
    topic, other = declared(**timed), declared(**timed, checks=[])
    assert decoding(topic) == decoding(other)
    object.__setattr__(other, "scheme", "github")
    assert decoding(topic) == decoding(other)
    assert decoding(topic) != decoding(declared())


FILE = '''\
"""Refunds, as the bank reports them."""
from twofold import from_webhook

TOPIC = from_webhook(scheme="standard", schema={"cents": "int"})
'''
PLAIN = '''\
"""Two declarations in one file."""
from twofold import from_webhook, Topic

TOPIC = from_webhook(scheme="standard", schema={"cents": "int"})
OTHER = from_webhook(scheme="github", schema={"cents": "int"})
'''


def test_a_file_declares_one_topic_of_webhooks(tmp_path: Path) -> None:
    found = load(written(tmp_path, {"shop/refunds.py": FILE, "shop/more.py": PLAIN}))
    assert [topic.full_name for topic in webhook_topics(found)] == ["shop.refunds"]
    assert "found TOPIC (a Topic), OTHER (a Topic)" in str(found.faults["shop.more"])
    assert webhook_topics(Registry({"shop.plain": bound_as(_plain(), "plain", "shop")}, {})) == []


def _plain() -> Topic:
    return Topic(schema={"id": "string", "at": "timestamp"}, event_time="at", message_key="id", dedup_keys=["id"])


def test_a_delivery_is_on_the_disk_of_the_broker_before_it_is_answered_for() -> None:
    """A loss of power takes what is in the page cache alone; its sender would not send it again."""
    topic = bound_as(from_webhook(scheme="standard", schema={"cents": "int"}), "refunds", "shop")
    assert spec(topic).configs["flush.messages"] == "1"
    assert "flush.messages" not in spec(a_topic()).configs


def test_declarations_load_no_code_of_a_receiver() -> None:
    loading_none_of({"standardwebhooks", "fastapi", "uvicorn", "kafka", "sqlite3", "pyarrow"}, "import twofold.tables")
