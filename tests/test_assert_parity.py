"""What `./twofold new` writes a test with finds nothing wrong with a table that is right, and a mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.mutations.test_mutations import repetitions_that_count
from tests.parity import assert_parity
from tests.records import records_of
from tests.tables.declared import a_topic
from twofold.quality.rules import between, matches, one_of
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings


def test_records_of_every_type_fit_and_only_broken_ones_are_refused() -> None:
    schema = {
        **{name: name for name in ("string", "boolean", "int", "long", "double", "date", "timestamp")},
        "zoneless": "timestamp_ntz",
        "bytes": "binary?",
        "any": "json",
        "price": "decimal(10,2)",
        "list": "array<int>",
        "named": "map<string,double>",
        "place": "struct<city: string, size: long?>?",
        "sensor": "string",
        "read_at": "timestamp",
    }
    rules = [matches("string", "[A-Z]{2}[0-9]+(-x)?"), one_of("int", [3, 5]), between("double", 10, 20)]
    topic = a_topic(schema=schema, checks=rules)
    rows = [{"partition": 0, "offset": n, "value": value} for n, value in enumerate(records_of(topic))]
    decoded = Decoder(topic).decode(pa.Table.from_pylist(rows, schema=RAW_SCHEMA), None)
    reasons = {reason for row in decoded.rejected.to_pylist() for reason in row["reasons"]}
    assert (len(rows), len(decoded.rejected)) == (420, 8), reasons


def test_a_table_that_follows_another_is_right(spark: SparkSession, settings: Settings) -> None:
    world = assert_parity(spark, settings, "flights.carrier_days")
    assert world.lake.rows("flights.flights") > 0
    assert world.lake.rows("flights.delays_by_hour") == 0, "it is not read"


def test_a_batch_that_counts_what_was_sent_twice_is_found(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    repetitions_that_count(monkeypatch)
    with pytest.raises(AssertionError, match="delays_by_hour"):
        assert_parity(spark, settings, "flights.delays_by_hour")
