"""The keys, the finality and the source records of the tables of `shop`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from twofold.demo.traffic import shop_database, shop_source
from twofold.infra.duckdb_session import load_extension

if TYPE_CHECKING:
    import duckdb

KEYS = {
    "shop.paid_orders": ("payment_id",),
    "shop.settlements": ("order_id", "payment_id"),
    "shop.buyers": ("product", "hour"),
    "shop.guessed_cards": ("payment_id",),
    "shop.meant_orders": ("order_id",),
    "shop.carts": ("cart_id", "version"),
    "shop.abandoned_carts": ("cart_id", "version"),
    "shop.search_results": ("search_id", "click_id"),
    "shop.foreign_orders": ("order_id", "login_id"),
    "shop.sold_lines": ("product", "line", "hour"),
    "shop.posts": ("post_id",),
    "shop.follows": ("follower", "author"),
    "shop.popular_authors": ("author",),
    "shop.timelines": ("follower", "post_id"),
    "shop.saved_search_terms": ("search_id", "anchor"),
    "shop.matching_searches": ("post_id", "search_id"),
    "shop.customers": ("customer",),
    "shop.shipments": ("shipment_id",),
    "shop.shipped_to": ("shipment_id",),
    "shop.viewed_from": ("view_id",),
}
_UNTIL = {
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
FINAL = {table: f"{_UNTIL[table]} < {{before}}" if table in _UNTIL else "true" for table in KEYS}
TOPICS = (
    "orders",
    "payments",
    "cart_events",
    "searches",
    "clicks",
    "logins",
    "post_events",
    "follow_events",
    "page_views",
    "saved_searches",
)
NESTED = ("lines", "labels")
"""Fields that the queries read as JSON."""


def load(connection: duckdb.DuckDBPyConnection, start: date, end: date, source: str) -> None:
    """Loads the records of the visits of `[start, end)` into the relations that the queries read.

    Args:
        source: the SQL that builds those relations from the records.
    """
    import msgspec

    by_topic: dict[str, list[Mapping[str, Any]]] = {topic: [] for topic in TOPICS}
    for _, day in shop_source.records(start, end):
        for record in day:
            by_topic[record.topic.removeprefix("shop.")].append(
                {"_key": record.key, **json.loads(msgspec.json.encode(record))}
            )
    load_records(connection, by_topic, source)
    _load_changes(connection, start, end)


def load_records(
    connection: duckdb.DuckDBPyConnection, found: Mapping[str, Sequence[Mapping[str, Any]]], source: str
) -> None:
    """Loads records into the relations that the queries read: topic -> its records in log order, in JSON form.

    The key of a record is `_key`, where the queries need it.
    """
    import pyarrow as pa

    load_extension(connection, "fts")  # for its stems
    for topic, records in found.items():
        rows = [
            {c: json.dumps(v) if c in NESTED and v is not None else v for c, v in row.items()} | {"_offset": offset}
            for offset, row in enumerate(records)
        ]
        connection.register(topic, pa.Table.from_pylist(rows))
    connection.execute(source)


def _load_changes(connection: duckdb.DuckDBPyConnection, start: date, end: date) -> None:
    """Loads the commits of the shop's programs, as a relation of changes per table; `nth` is their order."""
    import pyarrow as pa

    for table, columns in shop_database.COLUMNS.items():
        rows = [
            {"nth": nth, "kind": change.kind, **dict.fromkeys(columns), **change.row}
            for nth, transaction in enumerate(shop_database.transactions(start, end))
            for change in transaction.changes
            if change.table == table
        ]
        connection.register(f"changed_{table}", pa.Table.from_pylist(rows))
