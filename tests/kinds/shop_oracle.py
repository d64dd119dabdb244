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
    "shop.carts": "valid_from",
    "shop.abandoned_carts": "abandoned_at",
    "shop.search_results": "closes_at",
    "shop.foreign_orders": "closes_at",
    "shop.sold_lines": "closes_at",
}
"""Table -> the column of the time from which on nothing changes a row."""
VIEWS = """
    CREATE TABLE ordered AS
    SELECT DISTINCT
        order_id, buyer.customer, product, cents::INTEGER AS cents, country,
        ordered_at::TIMESTAMPTZ AS ordered_at,
        json_transform(lines::JSON, '[{"product": "VARCHAR", "price": "DECIMAL(10,2)",
            "wishes": {"note": "VARCHAR", "at": "TIMESTAMPTZ"}}]') AS lines,
        map_from_entries(list_sort(map_entries(labels::JSON::MAP(VARCHAR, BIGINT)))) AS labels
    FROM orders;

    CREATE TABLE tried AS
    SELECT DISTINCT payment_id, order_id, card, outcome, tried_at::TIMESTAMPTZ AS tried_at
    FROM payments;

    CREATE TABLE cart_changes AS
    SELECT cart_id, version::INTEGER AS version, kind, product, quantity::INTEGER AS quantity,
        happened_at::TIMESTAMPTZ AS happened_at
    FROM cart_events
    QUALIFY row_number() OVER (PARTITION BY cart_id, version ORDER BY _offset) = 1;

    CREATE TABLE searched AS SELECT DISTINCT search_id, terms, searched_at::TIMESTAMPTZ AS searched_at FROM searches;

    CREATE TABLE clicked AS
    SELECT DISTINCT click_id, search_id, product, clicked_at::TIMESTAMPTZ AS clicked_at FROM clicks;

    CREATE TABLE logged_in AS
    SELECT DISTINCT login_id, customer, country, logged_in_at::TIMESTAMPTZ AS logged_in_at FROM logins;
"""
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


NESTED = frozenset({"lines", "labels"})
"""Fields that DuckDB reads as JSON."""


class Oracle:
    """What tables must hold when everything of a log has been taken into account."""

    def __init__(self, log: Sequence[Sent]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for topic in TOPICS:
            rows = [json.loads(record.value) for record in log if record.topic == topic]
            texts = [
                {c: json.dumps(row[c]) if row.get(c) is not None else None for c in NESTED & row.keys()} for row in rows
            ]
            numbered = [
                {**row, **text, "_offset": offset} for offset, (row, text) in enumerate(zip(rows, texts, strict=True))
            ]
            self._connection.register(topic, pa.Table.from_pylist(numbered))
        self._connection.execute(VIEWS)
        self._connection.execute(f"CREATE TABLE cart_states AS {(QUERIES / 'carts.sql').read_text()}")

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
