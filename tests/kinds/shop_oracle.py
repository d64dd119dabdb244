"""DuckDB's answer to what the tables of the shop must hold, from the records of a log as they were sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

import duckdb
import pyarrow as pa

from tests.fuzz.fuzz_cases import Sent
from tests.worlds import World
from traffic.expected.expected_shop import load_records
from traffic.expected.expected_tables import is_final, query_of

TOPICS = {
    "orders": "order_id",
    "payments": "payment_id",
    "cart_events": "cart_id || version",
    "searches": "search_id",
    "clicks": "click_id",
    "logins": "login_id",
}
"""Topic -> what identifies its records."""
NAMED = {
    "settlements": """
        SELECT order_id, ordered_record AS record, 'orders' AS topic, order_id AS id FROM settlements
        WHERE outcome <> 'no order'
        UNION ALL
        SELECT order_id, paid_record, 'payments', payment_id FROM settlements WHERE payment_id IS NOT NULL""",
    "guessed_cards": """
        SELECT payment_id, unnest(records), 'payments', unnest(list_append(declined_ids, payment_id))
        FROM guessed_cards""",
    "carts": "SELECT cart_id, record, 'cart_events', cart_id || version FROM carts",
    "search_results": """
        SELECT search_id, searched_record, 'searches', search_id FROM search_results
        UNION ALL
        SELECT search_id, clicked_record, 'clicks', click_id FROM search_results WHERE click_id IS NOT NULL""",
    "foreign_orders": """
        SELECT order_id, login_record, 'logins', login_id FROM foreign_orders
        UNION ALL
        SELECT order_id, ordered_record, 'orders', order_id FROM foreign_orders""",
}
"""Table -> the records that its rows name, with what each must be the record of."""


class Oracle:
    """What tables must hold when everything of a log has been taken into account."""

    def __init__(self, log: Sequence[Sent]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        found = {topic: [json.loads(record.value) for record in log if record.topic == topic] for topic in TOPICS}
        load_records(self._connection, found, query_of("shop.source"))

    def expected(self, table: str, before: datetime) -> pa.Table:
        """The rows that are final before an instant."""
        condition = is_final(table, before)
        return self._connection.execute(f"SELECT * FROM ({query_of(table)}) WHERE {condition}").to_arrow_table()

    @staticmethod
    def is_final(table: str, before: datetime) -> str:
        return is_final(table, before)

    def misnamed(self, world: World) -> list[str]:
        """Rows that name a record which is not in the log, or is that of something else."""
        faults = []
        log = " UNION ALL ".join(
            f"SELECT '{topic}' AS topic, _offset, {key} AS id FROM {topic}" for topic, key in TOPICS.items()
        )
        for table, query in NAMED.items():
            self._connection.register(table, world.rows(f"shop.{table}"))
            wrong = self._connection.execute(
                f"""WITH named(row, record, topic, id) AS ({query})
                SELECT row, record FROM named
                LEFT JOIN ({log}) AS log
                    ON record.topic = 'shop.' || log.topic AND record.partition = 0 AND record.offset = _offset
                WHERE log.topic IS DISTINCT FROM named.topic OR log.id IS DISTINCT FROM named.id"""
            ).fetchall()
            faults += [f"shop.{table} names {record} for {row}" for row, record in wrong]
        return faults
