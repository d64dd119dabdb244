"""DuckDB's answer to what the tables of the shop must hold, from the records of a log as they were sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from tests.fuzz.fuzz_cases import Sent
from tests.worlds import World

QUERIES = Path(__file__).parent / "expected"
FINAL = {
    "shop.paid_orders": "closes_at",
    "shop.settlements": "closes_at",
    "shop.buyers": "closes_at",
    "shop.guessed_cards": "paid_at",
    "shop.meant_orders": "ordered_at",
}
"""Table -> the column of the time from which on nothing changes a row."""
VIEWS = """
    CREATE TABLE ordered AS
    SELECT DISTINCT order_id, customer, product, cents::INTEGER AS cents, ordered_at::TIMESTAMPTZ AS ordered_at
    FROM orders;

    CREATE TABLE tried AS
    SELECT DISTINCT payment_id, order_id, card, outcome, tried_at::TIMESTAMPTZ AS tried_at
    FROM payments;
"""
NAMED = {
    "settlements": """
        SELECT order_id, ordered_record AS record, 'orders' AS topic, order_id AS id FROM settlements
        WHERE outcome <> 'no order'
        UNION ALL
        SELECT order_id, paid_record, 'payments', payment_id FROM settlements WHERE payment_id IS NOT NULL""",
    "guessed_cards": """
        SELECT payment_id, unnest(records), 'payments', unnest(list_append(declined_ids, payment_id))
        FROM guessed_cards""",
}
"""Table -> the records that its rows name, with what each must be the record of."""


class Oracle:
    """What tables must hold when everything of a log has been taken into account."""

    def __init__(self, log: Sequence[Sent]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for topic in ("orders", "payments"):
            rows = [json.loads(record.value) for record in log if record.topic == topic]
            numbered = [{**row, "_offset": offset} for offset, row in enumerate(rows)]
            self._connection.register(topic, pa.Table.from_pylist(numbered))
        self._connection.execute(VIEWS)

    def expected(self, table: str, before: datetime) -> pa.Table:
        """The rows that are final before an instant."""
        query = (QUERIES / f"{table.split('.')[1]}.sql").read_text()
        condition = self.is_final(table, before)
        return self._connection.execute(f"SELECT * FROM ({query}) WHERE {condition}").to_arrow_table()

    def is_final(self, table: str, before: datetime) -> str:
        return f"{FINAL[table]} < TIMESTAMPTZ '{before.astimezone(UTC).isoformat()}'"

    def misnamed(self, world: World) -> list[str]:
        """Rows that name a record which is not in the log, or is that of something else."""
        faults = []
        for table, query in NAMED.items():
            self._connection.register(table, world.rows(f"shop.{table}"))
            wrong = self._connection.execute(
                f"""WITH named(row, record, topic, id) AS ({query})
                SELECT row, record FROM named
                LEFT JOIN (
                    SELECT 'orders' AS topic, _offset, order_id AS id FROM orders
                    UNION ALL SELECT 'payments', _offset, payment_id FROM payments
                ) AS log ON record.topic = 'shop.' || log.topic AND record.partition = 0 AND record.offset = _offset
                WHERE log.topic IS DISTINCT FROM named.topic OR log.id IS DISTINCT FROM named.id"""
            ).fetchall()
            faults += [f"shop.{table} names {record} for {row}" for row, record in wrong]
        return faults
