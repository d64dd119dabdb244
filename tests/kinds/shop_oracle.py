"""DuckDB's answer to what the tables of the shop must hold, from the records of a log as they were sent."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa

from tests import ROOT
from tests.fuzz.fuzz_cases import Sent
from twofold.demo.traffic.expected.expected_shop import load_records
from twofold.demo.traffic.expected.expected_tables import is_final, query_of
from twofold.testing.worlds import Keyed, World

TOPICS = {
    "orders": "order_id",
    "payments": "payment_id",
    "cart_events": "cart_id || version",
    "searches": "search_id",
    "clicks": "click_id",
    "logins": "login_id",
    "post_events": "post_id || version",
    "follow_events": "follower || author",
    "saved_searches": "_key",
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


PAGE = ROOT / "docs" / "how-to" / "kinds-of-tables.md"


class Oracle:
    """What tables must hold when everything of a log has been taken into account.

    Args:
        most_followers: of an author whose posts are copied into timelines.
    """

    def __init__(self, log: Sequence[Sent], most_followers: int) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        found = {topic: [_sent(record) for record in log if record.topic == topic] for topic in TOPICS}
        load_records(self._connection, found, query_of("shop.source"))
        self._connection.execute(f"SET VARIABLE most_followers = {most_followers}")

    def expected(self, table: str, before: datetime) -> pa.Table:
        """The rows that are final before an instant."""
        condition = is_final(table, before)
        return self._connection.execute(f"SELECT * FROM ({query_of(table)}) WHERE {condition}").to_arrow_table()

    @staticmethod
    def is_final(table: str, before: datetime) -> str:
        return is_final(table, before)

    def faults(self, world: World) -> list[str]:
        """Rows that name a wrong record, and timelines that the page's query reads wrong."""
        return [*self._misnamed(world), *self._misread(world)]

    def _misread(self, world: World) -> list[str]:
        """Followers for whom the page's query does not give each post, once, of each author whom they follow."""
        with duckdb.connect() as tables:
            tables.execute("SET TimeZone = 'UTC'")
            for name in ("timelines", "posts", "follows", "popular_authors"):
                tables.register("live", world.rows(f"shop.{name}"))
                tables.execute(f"CREATE TABLE {name} AS FROM live")  # DuckDB cannot filter the views of strings
            query = re.search(r"## Timelines.*?```sql\n(.*?);\n```", PAGE.read_text("utf-8"), re.DOTALL)
            assert query, PAGE
            wrong = []
            for [follower] in self._connection.execute("SELECT DISTINCT follower FROM follow_events").fetchall():
                found = tables.execute(query[1].replace("c0042", follower)).fetchall()
                all_posts = self._connection.execute(
                    """SELECT post_id, author, posted_at, product, text FROM posts_now JOIN follows_now USING (author)
                    WHERE follower = ?""",
                    [follower],
                ).fetchall()
                if sorted(found) != sorted(all_posts):
                    wrong.append(f"the timeline of {follower} is {found}, not {all_posts}")
        return wrong

    def _misnamed(self, world: World) -> list[str]:
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


def _sent(record: Sent) -> dict[str, Any]:
    """The fields of a record; of one with a key of its own also that, and nulls without a value."""
    if isinstance(record.value, Keyed):
        fields = dict.fromkeys(("customer", "name", "query")) if record.value.value is None else {}
        return {"_key": record.value.key.decode(), **fields, **json.loads(record.value.value or "{}")}
    return json.loads(record.value)
