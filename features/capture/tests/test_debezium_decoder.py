"""Change events become rows: what a change is, which values did not travel, what is refused."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.tables.declared import bound_as
from twofold.features.capture.captured_table import UNCHANGED
from twofold.features.capture.captured_topic import changes_of
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoded, Decoder

TOPIC = bound_as(
    changes_of(
        "public.people",
        columns={
            "id": "long",
            "name": "string",
            "balance": "decimal(12,2)",
            "born": "date",
            "woke_at": "timestamp_ntz",
            "seen_at": "timestamp",
            "profile": "json",
            "photo": "binary",
            "tags": "array<string>",
            "scores": "array<int>",
            "ratio": "double",
        },
        primary_key=["id"],
    ),
    "people",
)


def event(op: str, row: dict[str, Any] | None, *, sequence: str = '["10","20"]', **changes: Any) -> bytes:
    """An event as Debezium 3.7 writes it."""
    image = "before" if op == "d" else "after"
    source = {
        "name": "twofold_3_bank_people",
        "sequence": sequence,
        "lsn": 20,
        "ts_us": 1_000_000,
        "txId": 7,
        "snapshot": "false",
        "table": "people",
    }
    return json.dumps({"before": None, "after": None, image: row, "op": op, "source": source, **changes}).encode()


def decode(*values: bytes | None) -> Decoded:
    count = len(values)
    raw = pa.table(
        [
            pa.array([0] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array([datetime.now(UTC)] * count, pa.timestamp("us", tz="UTC")),
            pa.array([b"key"] * count),
            pa.array(values, pa.binary()),
        ],
        schema=RAW_SCHEMA,
    )
    return Decoder(TOPIC).decode(raw, None)


def only(value: bytes) -> dict[str, Any]:
    decoded = decode(value)
    assert decoded.rejected["reasons"].to_pylist() == []
    [row] = decoded.accepted.to_pylist()
    return dict(row)


def reason(value: bytes | None) -> str:
    decoded = decode(value)
    assert len(decoded.accepted) == 0
    [[found]] = decoded.rejected["reasons"].to_pylist()
    return str(found)


def test_a_row_has_the_values_of_the_database_exactly() -> None:
    row = only(
        event(
            "c",
            {
                "id": 1,
                "name": "a",
                "balance": "2.50",
                "born": -1,
                "woke_at": -3_000_001,
                "seen_at": "2020-01-02T01:04:05.123456Z",
                "profile": '{"a": 1.0, "big": 12345678901234567890}',
                "photo": base64.b64encode(b"\x00\xff").decode(),
                "tags": ["x", None],
                "scores": [1, None],
                "ratio": 0.1,
            },
        )
    )
    assert (row["balance"], row["born"]) == (Decimal("2.50"), date(1969, 12, 31))
    assert row["woke_at"] == datetime(1969, 12, 31, 23, 59, 56, 999_999)
    assert row["seen_at"] == datetime(2020, 1, 2, 1, 4, 5, 123_456, tzinfo=UTC)
    assert row["profile"] == '{"a": 1.0, "big": 12345678901234567890}'
    assert (row["photo"], row["tags"], row["scores"], row["ratio"]) == (b"\x00\xff", ["x", None], [1, None], 0.1)
    assert row["cdc_at"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (row["cdc_op"], row["cdc_commit_lsn"], row["cdc_lsn"], row["cdc_transaction"]) == ("insert", 10, 20, 7)
    assert row["cdc_snapshot"] == 3


def test_a_mark_is_an_event_of_no_row() -> None:
    """As the connector writes it, with the database's time as its content."""
    message = {"prefix": "twofold_mark", "content": base64.b64encode(b"2000000").decode()}
    row = only(event("m", None, sequence='["30","30"]', message=message))
    assert (row["cdc_op"], row["cdc_commit_lsn"], row["cdc_lsn"], row["cdc_snapshot"]) == ("mark", 30, 30, 3)
    assert row["cdc_at"] == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert {row[name] for name in ("id", "name", "cdc_missing", "_rest")} == {None}
    message["prefix"] = "of somebody else"
    assert reason(event("m", None, message=message)).startswith("`op` is 'm': expected one of")
    assert reason(event("c", {"name": "a"})) == "Expected `long`, got `null` at `id`"


def test_values_that_did_not_travel_are_named_in_every_form_that_they_have() -> None:
    text = UNCHANGED.encode()
    row = only(
        event(
            "u",
            {
                "id": 1,
                "name": UNCHANGED,
                "profile": UNCHANGED,
                "photo": base64.b64encode(text).decode(),
                "tags": [UNCHANGED],
                "scores": [*text],
                "ratio": 1.5,
            },
        )
    )
    assert row["cdc_unchanged"] == ["name", "photo", "profile", "scores", "tags"]
    assert [row[name] for name in row["cdc_unchanged"]] == [None] * 5
    assert row["ratio"] == 1.5


def test_an_array_of_uuids_that_did_not_travel_is_recognized() -> None:
    # Debezium fills it with Java's UUID.nameUUIDFromBytes of the marker, as a server was seen to send it.
    assert only(event("u", {"id": 1, "tags": ["18e17a18-3cb3-31fc-858f-011b5f189f15"]}))["cdc_unchanged"] == ["tags"]
    assert only(event("u", {"id": 1, "tags": [str(uuid.UUID(int=1))]}))["cdc_unchanged"] == []


def test_a_delete_has_the_key_alone() -> None:
    row = only(event("d", {"id": 1, "name": "a", "balance": "1.00"}))
    assert (row["id"], row["name"], row["balance"], row["cdc_op"]) == (1, None, None, "delete")


def test_a_row_of_a_snapshot_precedes_what_is_streamed_after_it() -> None:
    row = only(event("r", {"id": 1}, sequence='[null,"20"]'))
    assert (row["cdc_op"], row["cdc_commit_lsn"], row["cdc_lsn"]) == ("snapshot", 20, 0)
    first = only(event("u", {"id": 1}, sequence='[null,"25"]'))
    assert (first["cdc_commit_lsn"], first["cdc_lsn"]) == (25, 25)


def test_a_column_that_is_not_declared_is_kept() -> None:
    assert json.loads(only(event("c", {"id": 1, "later": "x"}))["_rest"]) == {"later": "x"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "no value"),
        (b"{", "truncated"),
        (event("t", None), "truncated, which removes rows"),
        (event("x", {"id": 1}), "`op` is 'x'"),
        (event("c", None), "without a row"),
        (event("c", {"id": None}), "at `id`"),
        (event("c", {"id": 1, "name": UNCHANGED}), "REPLICA IDENTITY FULL"),
        (event("c", {"id": 1, "ratio": "NaN"}), "at `ratio`"),
        (event("c", {"id": 1, "balance": "1.005"}), "at `balance`"),
        (event("c", {"id": 1, "balance": "NAN"}), "at `balance`"),
        (event("c", {"id": 1, "born": -622_191_234}), "year from 1 to 9999 at `born`"),
        (event("c", {"id": 1, "woke_at": 9_223_372_036_854_775_807}), "year from 1 to 9999 at `woke_at`"),
        # The column was a timestamp, and is a date now; the other way round, and as text.
        (event("c", {"id": 1, "woke_at": 15_706}), "expected microseconds, got what a day has, 15706, at `woke_at`"),
        (event("c", {"id": 1, "born": 1_357_000_000_000_000}), "the column may have got another type"),
        (event("c", {"id": 1, "woke_at": "2013-01-01T00:00:00Z"}), "Expected `int`, got `str`"),
        (event("c", {"id": 1, "seen_at": 1_357_000_000_000_000}), "at `seen_at`"),
        (event("c", {"id": 1, "seen_at": "-infinity"}), "at `seen_at`"),
        (event("c", {"id": 1}, sequence="nothing"), "JSON"),
    ],
)
def test_what_cannot_be_exact_is_refused_with_its_reason(value: bytes | None, expected: str) -> None:
    assert expected in reason(value)


def test_columns_that_the_table_lacks_are_named() -> None:
    """A column that was renamed is there, under the name that it has now."""
    full = dict.fromkeys(TOPIC.types.keys() - {name for name in TOPIC.types if name.startswith("cdc_")}) | {"id": 1}
    assert only(event("c", full))["cdc_missing"] is None
    renamed = {name: value for name, value in full.items() if name not in ("name", "born")} | {"full_name": "a"}
    row = only(event("u", renamed))
    assert (row["cdc_missing"], json.loads(row["_rest"])) == ("born, name", {"full_name": "a"})
    assert only(event("d", {"id": 1}))["cdc_missing"] is None


def test_one_refused_change_stops_no_other() -> None:
    decoded = decode(event("c", {"id": 1}), event("t", None), event("d", {"id": 1}))
    assert decoded.accepted["cdc_op"].to_pylist() == ["insert", "delete"]
    assert decoded.rejected["_offset"].to_pylist() == [1]


def test_a_value_beyond_the_limit_is_not_decoded() -> None:
    small = Decoder(replace(TOPIC, max_bytes=10))
    value = event("c", {"id": 1})
    raw = pa.table([[0], [0], [datetime.now(UTC)], [b"k"], [value]], names=RAW_SCHEMA.names).cast(RAW_SCHEMA)
    assert "expected at most 10" in small.decode(raw, None).rejected["reasons"].to_pylist()[0][0]


def test_a_row_of_an_incremental_snapshot_is_no_change() -> None:
    source = {"name": "twofold_3_bank_people", "sequence": "[null,null]", "lsn": None, "ts_us": 5}
    row = only(event("r", {"id": 1, "name": "a"}, source={**source, "snapshot": "incremental"}))
    assert (row["name"], row["cdc_op"], row["cdc_snapshot"], row["cdc_lsn"]) == ("a", "snapshot", 0, 0)
