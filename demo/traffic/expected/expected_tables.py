"""Computes the expected rows of tables from the sources, with DuckDB.

No code is shared with the declarations, so that a mistake in one of them is found.
"""

from __future__ import annotations

from datetime import date, datetime
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import duckdb

from twofold.demo.traffic.expected import expected_flights, expected_shop
from twofold.infra.errors import BadArgument
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = {**expected_flights.KEYS, **expected_shop.KEYS}
"""Table -> the columns that identify a row; these are the tables whose truth is known."""
OF_PERSONS = {"shop.customers"}
"""Tables with values made of what only a person's key reads."""
_FINAL = {**expected_flights.FINAL, **expected_shop.FINAL}
_one_at_a_time = Lock()
"""Temporary tables are seen by their connection alone, which runs one query at a time."""
_LOAD = {"flights": expected_flights.load, "shop": expected_shop.load}


def expected(table: str, start: date, end: date, condition: str = "true") -> pa.Table:
    """Computes all rows that the table has once all records of `[start, end)` have arrived, in the order of its key.

    Columns, names and types are those of the live table; timestamps are microseconds in UTC.

    Args:
        table: full name.
        start, end: days of the source, as the traffic's range.
        condition: of the rows that are wanted, in DuckDB's SQL, for example `is_final(table, before)`.

    Raises:
        BadArgument: the expected rows of the table are not known.
    """
    query = query_of(_known(table))
    domain = table.partition(".")[0]
    order = ", ".join(KEYS[table])
    with _one_at_a_time:
        found = _sources(domain, start, end).execute(f"FROM ({query}) WHERE {condition} ORDER BY {order}")
        return found.to_arrow_table()


@lru_cache(maxsize=1)
def _sources(domain: str, start: date, end: date) -> duckdb.DuckDBPyConnection:
    """Loads the relations that the domain's queries read; cached, since that costs more than the query of one table."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    _LOAD[domain](connection, start, end, query_of(f"{domain}.source"))
    return connection


def query_of(table: str) -> str:
    """Reads the SQL of a table's rows; for `<domain>.source`, that of the relations which the domain's queries read."""
    domain, _, name = table.partition(".")
    return (Path(__file__).parent / domain / f"{name}.sql").read_text("utf-8")


def is_final(table: str, before: datetime) -> str:
    """Writes a DuckDB condition on the table's own columns: no event from `before` on can change the row.

    Apply the same condition to the live table. It is `closes_at < before` for a windowed table; for days of carriers,
    that all flights of the day have expired by then; the latest weather is never final and always compared.

    Args:
        before: for example the watermark of the stream.
    """
    return _FINAL[_known(table)].format(before=DUCKDB.literal(before))


def _known(table: str) -> str:
    if table not in KEYS:
        raise BadArgument(f"The truth of {table!r} is not known.", hint=f"It is of {', '.join(KEYS)}.")
    return table
