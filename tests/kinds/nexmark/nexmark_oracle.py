"""DuckDB's answer to Nexmark's queries, each written from its definition, from the records of the log."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from twofold.testing.worlds import World

QUERIES = Path(__file__).parent / "expected"
VIEWS = """
    CREATE TABLE persons AS SELECT DISTINCT * REPLACE (date_time::TIMESTAMPTZ AS date_time) FROM person_records;

    CREATE TABLE auctions AS
    SELECT DISTINCT * REPLACE (date_time::TIMESTAMPTZ AS date_time, expires::TIMESTAMPTZ AS expires)
    FROM auction_records;

    CREATE TABLE bids AS
    SELECT * EXCLUDE (appended_at) REPLACE (date_time::TIMESTAMPTZ AS date_time), min(appended_at) AS appended_at
    FROM bid_records GROUP BY ALL;
"""


class Oracle:
    """What the tables must hold, rows that are still open included, once all of the log is taken into account."""

    def __init__(self, world: World) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for topic in ("person", "auction", "bid"):
            log = world.log[f"nexmark.{topic}"]
            records = pa.Table.from_pylist([json.loads(value) for value in log["value"].to_pylist()])
            if topic == "bid":
                records = records.append_column("appended_at", log["timestamp"])
            self._connection.register(f"{topic}_records", records)
        self._connection.execute(VIEWS)

    def expected(self, table: str, before: datetime) -> pa.Table:
        query = (QUERIES / f"{table.split('.')[1]}.sql").read_text()
        return self._connection.execute(query).to_arrow_table()

    def is_final(self, table: str, before: datetime) -> str:
        return "true"

    def faults(self, world: World) -> list[str]:
        return []
