"""A new domain, topic and table are one command each, and work as they are written."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shutil
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests import ROOT
from twofold.batch.preview import preview
from twofold.cli.writing.sample import read_sample
from twofold.cli.writing.scaffold import write_domain, write_table, write_topic
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument
from twofold.tables.declare import registry
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoder
from twofold.tables.refresh.open_platform import ensure_topics_of
from twofold.testing.assertions import assert_parity, assert_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the declarations."""
    folder = Path("tables") / "flights"
    shutil.copytree(ROOT / "demo" / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("reads", "strategy", "key"),
    [
        ("departures", "stateful", ("carrier", "window_start")),
        ("weather", "stateful", ("airport", "window_start")),
        ("flights.arrivals", "stateful", ("carrier", "window_start")),
        ("flights", "touched", ("flight_id",)),
        ("carrier_days", "touched", ("carrier",)),
    ],
)
def test_what_it_writes_can_be_loaded(checkout: Path, reads: str, strategy: str, key: tuple[str, ...]) -> None:
    written = write_table("my_counts", domain="flights", reads=reads, root=checkout)
    declared = registry.load(checkout / "tables")
    table = declared.find_table("my_counts")
    assert declared.strategy(table) == strategy
    assert table.primary_key == key
    assert [i.full_name for i in declared.upstream(table)] == [f"flights.{reads.removeprefix('flights.')}"]
    tests = [node.name for node in ast.walk(ast.parse(written.test.read_text())) if isinstance(node, ast.FunctionDef)]
    assert tests == ["test_rows_in_rows_out", "test_the_stream_and_the_batch_agree_after_reconcile"]


@pytest.mark.parametrize("name", ["Counts", "9lives", "class", "my-table", "x_quarantine", "../x", ""])
def test_a_name_that_cannot_be_used_is_refused(checkout: Path, name: str) -> None:
    with pytest.raises(BadArgument, match="cannot name"):
        write_table(name, domain="flights", reads="departures", root=checkout)


def test_nothing_is_overwritten(checkout: Path) -> None:
    write_table("my_counts", domain="flights", reads="departures", root=checkout)
    with pytest.raises(BadArgument, match="declared already"):
        write_table("my_counts", domain="flights", reads="departures", root=checkout)
    (checkout / "tables" / "flights" / "my_counts.py").unlink()
    with pytest.raises(BadArgument, match="exists already"):
        write_table("my_counts", domain="flights", reads="departures", root=checkout)
    assert not (checkout / "tables" / "flights" / "my_counts.py").exists()


def test_an_unknown_input_is_refused_with_what_there_is(checkout: Path) -> None:
    with pytest.raises(BadArgument) as refused:
        write_table("my_counts", domain="flights", reads="departure", root=checkout)
    assert "departures" in str(refused.value.hint)


def test_an_unknown_domain_is_refused(checkout: Path) -> None:
    with pytest.raises(BadArgument):
        write_table("my_counts", domain="rail", reads="departures", root=checkout)


SAMPLE = [
    {"id": 1, "shop": "a", "sold_at": "2013-01-01T10:05:00Z", "paid_at": None, "price": 2, "tags": ["x"]},
    {"id": 2, "shop": "a", "sold_at": "2013-01-01T10:50:00+01:00", "price": 2.5, "tags": []},
    {"id": 5_000_000_000, "shop": "b", "sold_at": "2013-01-01T11:00:00Z", "price": 1, "tags": ["y"]},
]


def lines(*rows: object) -> list[str]:
    return [json.dumps(row) for row in rows]


def test_a_sample_says_types_nullability_event_time_and_identity() -> None:
    found = read_sample(lines(*SAMPLE))
    assert read_sample(lines({"id": 1, "at": "2013-01-01", "day": "2013-01-01"})).schema["day"] == "date"
    assert found.schema == {
        "id": "long",
        "shop": "string",
        "sold_at": "timestamp",
        "paid_at": "json?",
        "price": "double",
        "tags": "array<string>",
    }
    assert (found.times, found.identities, found.records) == (["sold_at"], [("id",)], 3)


NESTED = [
    {"id": 1, "at": "2013-01-01T10:00:00Z", "local": "2013-01-01T10:00:00", "cart": {"n": 1, "items": [{"sku": "a"}]}},
    {"id": 2, "at": "2013-01-01T10:01:00Z", "local": "2013-01-01T10:00:00", "cart": {"n": 2.5, "items": []}},
    {"id": 3, "at": "2013-01-01T10:02:00Z", "local": "2013-01-01T10:00:00", "cart": None},
]


def test_objects_become_structs_and_those_of_varying_keys_maps() -> None:
    tags = [{"red": 1, "big": 2}, {"new": 1}, {"old": 1, "blue": 4}]
    rows = [{**row, "tags": tag, "grid": [[1], [2.5]]} for row, tag in zip(NESTED, tags, strict=True)]
    found = read_sample(lines(*rows))
    assert found.schema == {
        "id": "int",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "cart": "struct<n: double, items: array<struct<sku: string>>>?",
        "tags": "map<string,int>",
        "grid": "array<array<double>>",
    }
    assert (found.times, found.notes) == (["at"], [])


def test_what_a_sample_leaves_open_is_json_and_noted() -> None:
    found = read_sample(['{"a": 1, "b": null, "c": [], "x-y": 1, "d": {}}', '{"a": "x", "b": null, "c": [], "d": {}}'])
    assert found.schema == {"a": "json", "b": "json?", "c": "array<json>", "d": "json"}
    assert [note.split()[0] for note in found.notes] == ["a", "b", "c[]", "x-y", "d"]


@pytest.mark.parametrize(
    ("depth", "kind", "notes"),
    [
        (2, "struct<b: struct<c: json, n: int>>", ["a.b.c is an object within 2 others: it is kept as json"]),
        (1, "struct<b: json>", ["a.b is an object within 1 others: it is kept as json"]),
        (3, "struct<b: struct<c: struct<d: int>, n: int>>", []),
    ],
)
def test_objects_within_objects_become_json(depth: int, kind: str, notes: list[str]) -> None:
    found = read_sample(lines({"id": 1, "a": {"b": {"c": {"d": 1}, "n": 2}}}), depth)
    assert found.schema["a"] == kind
    assert [note.partition(";")[0] for note in found.notes] == notes


def test_an_object_of_many_fields_becomes_json_unless_a_depth_is_given() -> None:
    wide = lines({"id": 1, "a": {f"f{n}": n for n in range(21)}})
    assert (read_sample(wide).schema["a"], read_sample(wide).notes[0].partition(":")[0]) == (
        "json",
        "a is an object of 21 fields",
    )
    assert read_sample(wide, 1).schema["a"].startswith("struct<f0: int")


def test_a_nested_sample_is_a_topic_whose_test_passes(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    write_domain("shops", root=tmp_path)
    wide = {f"a_rather_long_name_{n}": {"of": n, "in": "x"} for n in range(8)}
    rows = [{**row, "wide": {"all": wide}} for row in NESTED]
    written, chosen = write_topic("carts", read_sample(lines(*rows)), domain="shops", root=tmp_path)
    assert max(map(len, written.declaration.read_text().splitlines())) <= 120
    topic = registry.load(tmp_path / "tables").require_sound().find_topic("carts")
    assert topic.unknown_fields == "keep"
    assert [(what, value) for what, value, _ in chosen] == [
        ("event_time", "at"),
        ("dedup_keys", "id"),
        ("message_key", "id"),
    ]
    more = {**rows[0], "coupon": {"code": "x"}}
    raw = [{"partition": 0, "offset": n, "value": line.encode()} for n, line in enumerate(lines(*rows, more))]
    decoded = Decoder(topic).decode(pa.Table.from_pylist(raw, schema=RAW_SCHEMA), None)
    assert (len(decoded.accepted), decoded.rejected.to_pylist()) == (4, [])
    assert decoded.accepted["_rest"].to_pylist()[3] == '{"coupon":{"code": "x"}}'


ENVELOPES = [
    {"meta": {"id": f"e{n}", "sent": {"at": f"2013-01-01T10:0{n}:00Z", "by": "till"}}, "id": {"old": 7}, "sku": "a"}
    for n in range(3)
]


def test_the_event_time_and_the_identity_may_be_within_objects(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    write_domain("shops", root=tmp_path)
    found = read_sample(lines(*ENVELOPES))
    assert (found.times, found.identities) == (["meta.sent.at"], [("meta.id",)])
    _, chosen = write_topic("carts", found, domain="shops", root=tmp_path)
    assert [(what, value) for what, value, _ in chosen][:2] == [
        ("event_time", "meta.sent.at"),
        ("dedup_keys", "meta.id"),
    ]
    topic = registry.load(tmp_path / "tables").require_sound().find_topic("carts")
    assert (topic.event_time, topic.dedup_keys, topic.message_key) == ("at", ("meta_id",), "meta_id")
    assert {c: repr(kind) for c, kind in topic.schema.items()} == {
        "meta_id": "field('meta.id', 'string')",
        "at": "field('meta.sent.at', 'timestamp')",
        "by": "field('meta.sent.by', 'string')",
        "id": "'struct<old: int>'",
        "sku": "'string'",
    }
    raw = [{"partition": 0, "offset": n, "value": line.encode()} for n, line in enumerate(lines(*ENVELOPES))]
    decoded = Decoder(topic).decode(pa.Table.from_pylist(raw, schema=RAW_SCHEMA), None)
    assert (decoded.accepted["meta_id"].to_pylist(), decoded.rejected.to_pylist()) == (["e0", "e1", "e2"], [])
    assert write_table("hourly", domain="shops", root=tmp_path).declaration.exists()
    assert registry.load(tmp_path / "tables").require_sound().find_table("hourly").primary_key == ("by", "window_start")


@pytest.mark.parametrize(
    ("event_time", "message"),
    [
        ("meta.sent", "has no column 'meta.sent'"),
        ("meta.id", "expected a time with an offset"),
        ("sku", "expected a time"),
    ],
)
def test_a_field_that_cannot_be_the_event_time_is_refused(tmp_path: Path, event_time: str, message: str) -> None:
    (tmp_path / "tables").mkdir()
    write_domain("shops", root=tmp_path)
    with pytest.raises(BadArgument, match=message):
        write_topic("carts", read_sample(lines(*ENVELOPES)), domain="shops", event_time=event_time, root=tmp_path)
    assert not (tmp_path / "tables" / "shops" / "carts.py").exists()


def test_a_time_that_some_records_lack_is_no_event_time() -> None:
    rows = [{"id": 1, "meta": {"at": "2013-01-01T10:00:00Z"}}, {"id": 2, "meta": None}]
    assert read_sample(lines(*rows)).times == []


def test_two_columns_identify_records_where_one_does_not() -> None:
    rows = [{"at": "2013-01-01T10:00:00Z", "a": a, "b": b} for a in "xy" for b in "xy"]
    assert read_sample(lines(*rows)).identities == [("a", "b")]


def test_the_time_of_the_event_is_preferred_to_other_times() -> None:
    row = {"received_at": "2013-01-01T10:00:00Z", "occurred_at": "2013-01-01T10:00:00Z", "id": "a"}
    assert read_sample(lines(row)).times == ["occurred_at", "received_at"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "The sample is empty"),
        (['{"a": 1}', "{"], "Line 2 of the sample is not JSON"),
        (["[1]"], "Line 1 of the sample is list; expected a JSON object"),
    ],
)
def test_a_sample_that_no_topic_can_have_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(BadArgument, match=re.escape(message)):
        read_sample(texts)


def a_domain(root: Path) -> None:
    """`shops`, with the topic `sales` of the sample, and the tables `hourly` and, over it, `totals`."""
    (root / "tables").mkdir()
    write_domain("shops", root=root)
    write_topic("sales", read_sample(lines(*SAMPLE)), domain="shops", root=root)
    write_table("hourly", domain="shops", root=root)
    write_table("totals", domain="shops", reads="hourly", root=root)


def test_a_domain_of_ones_own_is_three_commands(tmp_path: Path) -> None:
    a_domain(tmp_path)
    declared = registry.load(tmp_path / "tables").require_sound()
    topic = declared.find_topic("sales")
    assert (topic.event_time, topic.message_key, topic.dedup_keys) == ("sold_at", "id", ("id",))
    assert declared.find_table("hourly").primary_key == ("shop", "window_start")
    assert declared.find_table("totals").primary_key == ("shop",)
    rows = [{"partition": 0, "offset": n, "value": line.encode()} for n, line in enumerate(lines(*SAMPLE))]
    decoded = Decoder(topic).decode(pa.Table.from_pylist(rows, schema=RAW_SCHEMA), None)
    assert (len(decoded.accepted), len(decoded.rejected)) == (3, 0)


def test_each_column_of_what_it_writes_is_described(tmp_path: Path) -> None:
    a_domain(tmp_path)
    declared = registry.load(tmp_path / "tables").require_sound()
    assert {name: set(of) for name, of in declared.descriptions.items() if name != "shops.sales"} == {
        "shops.hourly": {"shop", "window_start", "window_end", "records"},
        "shops.totals": {"shop", "records"},
    }
    described = declared.descriptions["shops.sales"]
    assert {*SAMPLE[0]} <= {*described}
    assert described["price"] == "what it is, and in which unit"


def test_a_topic_needs_its_domain_and_columns_of_the_sample(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    found = read_sample(lines(*SAMPLE))
    with pytest.raises(BadArgument, match="There is no domain 'shops'"):
        write_topic("sales", found, domain="shops", root=tmp_path)
    write_domain("shops", root=tmp_path)
    with pytest.raises(BadArgument, match="no column 'at'"):
        write_topic("sales", found, domain="shops", event_time="at", root=tmp_path)
    with pytest.raises(BadArgument, match="no column that is always a time"):
        write_topic("sales", read_sample(['{"id": 1}']), domain="shops", root=tmp_path)
    with pytest.raises(BadArgument, match="'ledger' cannot name a domain"):
        write_domain("ledger", root=tmp_path)
    with pytest.raises(BadArgument, match="exists already"):
        write_domain("shops", root=tmp_path)


@pytest.mark.parametrize("name", ["hourly", "totals"])
def test_the_tests_that_are_written_pass(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    a_domain(tmp_path)
    declared = registry.load(tmp_path / "tables")
    monkeypatch.setattr("twofold.testing.assertions.load", lambda: declared)
    module = runpy.run_path(str(tmp_path / "tests" / f"test_{name}.py"))
    module["test_rows_in_rows_out"](partial(assert_rows, spark))
    began = time.monotonic()
    module["test_rows_in_rows_out"](partial(assert_rows, spark))
    print(f"rows in, rows out, warm: {time.monotonic() - began:.2f} s")
    module["test_the_stream_and_the_batch_agree_after_reconcile"](partial(assert_parity, spark, settings))


def test_rows_that_differ_are_named_by_their_key_and_by_what_differs(spark: SparkSession, tmp_path: Path) -> None:
    a_domain(tmp_path)
    hour = {"window_start": "2013-01-01T10:00"}
    with pytest.raises(AssertionError) as refused:
        assert_rows(
            spark,
            "shops.hourly",
            registry=registry.load(tmp_path / "tables"),
            sales=[{"shop": shop, "sold_at": "2013-01-01T10:30"} for shop in "aab"],
            gives=[{"shop": "a", "records": 3, **hour}, {"shop": "c", "records": 1, **hour}],
        )
    assert str(refused.value).splitlines() == [
        "shops.hourly gives other rows:",
        "differs: shop='a' window_start=2013-01-01T10:00:00: records is 2, expected 3",
        "missing: shop='c' records=1 window_start='2013-01-01T10:00'",
        "not expected: shop='b' records=1 window_start=2013-01-01T10:00:00",
    ]


def test_the_first_rows_of_a_table_are_shown_without_making_it(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    a_domain(tmp_path)
    declared = registry.load(tmp_path / "tables")
    lake = Lake(settings)
    with pytest.raises(BadArgument, match=r"Nothing of .* was ingested yet"):
        preview(spark, lake, declared, declared.find_table("totals"))
    ensure_topics_of(lake, declared, "shops")
    rows = [{"partition": 0, "offset": n, "value": line.encode()} for n, line in enumerate(lines(*SAMPLE))]
    raw = pa.Table.from_pylist(rows, schema=RAW_SCHEMA)
    write_deltalake(
        lake.uri("shops.sales"), Decoder(declared.find_topic("sales")).decode(raw, None).accepted, mode="append"
    )
    before = lake.names()
    found = preview(spark, lake, declared, declared.find_table("totals")).toArrow().to_pylist()
    assert sorted((row["shop"], row["records"]) for row in found) == [("a", 2), ("b", 1)]
    assert lake.names() == before
