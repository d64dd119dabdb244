"""What `twofold new` writes a test with finds nothing wrong with a table that is right, and a mistake."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.mutations.test_mutations import repetitions_that_count
from tests.tables.declared import a_topic
from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.producer import messages
from twofold.quality.rules import between, matches, one_of
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoder
from twofold.testing import Faults, assert_events, assert_parity, assert_rows, records_of

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


def two_days_of_flights() -> dict[str, list[bytes]]:
    topics = {topic.full_name: topic for topic in load().domain_topics("flights")}
    records = defaultdict(list)
    for message in messages("flights", date(2013, 1, 1), date(2013, 1, 3), topics, FaultInjection(hours_share=0.05)):
        records[message.topic].append(message.value)
    return records


@pytest.mark.parametrize(
    ("faults", "sent", "broken"),
    [(Faults(late=0, repeated=0, corrupt=0), 400, 0), (Faults(repeated=1, corrupt=0.5), 800, 200)],
)
def test_as_many_records_have_a_fault_as_are_asked_for(faults: Faults, sent: int, broken: int) -> None:
    records = records_of(a_topic(), faults=faults)
    assert (len(records), sum(not record.endswith(b"}") for record in records)) == (sent, broken)


def test_records_that_would_be_quarantined_are_named() -> None:
    assert_events("flights.weather", [])
    with pytest.raises(AssertionError, match=r"flights.weather would quarantine:\nb'no JSON': "):
        assert_events("flights.weather", [b"no JSON"])


def test_rows_are_those_that_duckdb_has(spark: SparkSession) -> None:
    flights = [{"carrier": "UA", "departed_at": f"2013-01-05T1{hour}:00", "outcome": "landed"} for hour in range(3)]
    query = "SELECT carrier, count(*) AS flights FROM flights GROUP BY carrier"
    assert_rows(spark, "flights.carrier_days", flights=flights, gives_sql=query)
    with pytest.raises(AssertionError, match="flights is 3, expected 4"):
        assert_rows(spark, "flights.carrier_days", flights=flights, gives_sql=query.replace("*)", "*) + 1"))


def test_a_table_that_follows_another_is_right(spark: SparkSession, settings: Settings) -> None:
    world = assert_parity(spark, settings, "flights.carrier_days", records=two_days_of_flights())
    assert world.lake.rows("flights.flights") > 0
    assert world.lake.rows("flights.delays_by_hour") == 0, "it is not read"


def test_a_batch_that_counts_what_was_sent_twice_is_found(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    repetitions_that_count(monkeypatch)
    with pytest.raises(AssertionError, match="delays_by_hour"):
        assert_parity(spark, settings, "flights.delays_by_hour", records=two_days_of_flights())


def test_a_table_that_stays_empty_says_which_records_were_refused(spark: SparkSession, settings: Settings) -> None:
    records = {"flights.departures": [b'{"flight_id": 1}', b"{", b"}"]}
    with pytest.raises(AssertionError, match=r"stayed empty\nflights\.departures refused 3 records, the first: \w"):
        assert_parity(spark, settings, "flights.delays_by_hour", records=records)
