"""A record without a value is a deletion where the topic is compacted, and quarantined elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.tables.declared import a_topic, bound_as
from twofold.infra.errors import BadDeclaration
from twofold.quality.rules import between
from twofold.tables.declare.record_fields import field, header, key
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoder
from twofold.tables.refresh.events.topic_specs import spec

SCHEMA = {"item": key(), "at": "timestamp", "price": "int", "unit": field("unit", "string", default="piece")}
APPENDED = datetime(2026, 1, 2, tzinfo=UTC)
RECORD = b'{"at":"2026-01-01T00:00:00Z","price":3}'


def prices(**changes: Any) -> Topic:
    given = {"schema": SCHEMA, "event_time": "at", "message_key": "item", "compacted": True, **changes}
    return bound_as(Topic(**given), "prices")


def raw(*records: tuple[bytes | None, bytes | None]) -> pa.Table:
    keys, values = zip(*records, strict=True)
    columns = [[0] * len(keys), range(7, 7 + len(keys)), [APPENDED] * len(keys), keys, values]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)


def test_a_tombstone_is_an_event_at_the_time_of_its_append() -> None:
    topic = prices(checks=[between("price", 1, 9)])
    bad = b'{"at":"2026-01-01T00:00:00Z","price":0}'
    found = Decoder(topic).decode(raw((b"a", RECORD), (b"b", None), (b"c", bad), (b"d", b"{"), (b"a", None)), None)
    events = found.accepted.select(["item", "at", "price", "unit", "log_offset", "is_tombstone"])
    assert [tuple(row.values()) for row in events.to_pylist()] == [
        ("a", datetime(2026, 1, 1, tzinfo=UTC), 3, "piece", 7, False),
        ("b", APPENDED, None, None, 8, True),
        ("a", APPENDED, None, None, 11, True),
    ]
    assert found.rejected["_offset"].to_pylist() == [9, 10]


def test_a_tombstone_without_a_key_is_quarantined() -> None:
    found = Decoder(prices()).decode(raw((None, None), (b"a", None)), None)
    assert found.rejected["reasons"].to_pylist() == [["no key: expected `string` at `item`"]]
    assert found.accepted["item"].to_pylist() == ["a"]


def test_elsewhere_a_reason_says_how_tombstones_are_declared() -> None:
    found = Decoder(prices(compacted=False, dedup_keys=["item"])).decode(raw((b"a", None)), None)
    [[reason]] = found.rejected["reasons"].to_pylist()
    assert reason.startswith("no value")
    assert reason.endswith("declared with compacted=True")


def test_a_compacted_topic_has_no_archive_on_the_broker() -> None:
    configs = spec(prices()).configs
    assert configs["cleanup.policy"] == "compact"
    # A stream that is down for a quarter still reads each tombstone.
    assert int(configs["delete.retention.ms"]) > 90 * 24 * 3_600_000
    assert not {"remote.storage.enable", "local.retention.ms"} & configs.keys()
    assert spec(a_topic()).configs["remote.storage.enable"] == "true"


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"tiered": True}, "no archive of a compacted topic"),
        ({"schema": {**SCHEMA, "item": "string"}}, "expected key"),
        ({"schema": {**SCHEMA, "item": key("string?")}}, "expected key"),
        ({"dedup_keys": ["item"]}, "every record counts"),
        ({"schema": {**SCHEMA, "trace": header("trace", "string")}}, "may lack the header"),
        ({"schema": {**SCHEMA, "log_offset": "long"}}, "log_offset is a column of every compacted topic"),
        ({"message_key": "thing"}, "thing"),
    ],
)
def test_what_a_compacted_topic_cannot_have_is_refused(changes: dict[str, Any], mistake: str) -> None:
    with pytest.raises(BadDeclaration, match=mistake):
        prices(**changes)
