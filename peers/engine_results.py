"""What an engine left: the rows of its tables, and since when each of their files could be read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from twofold.infra.duckdb_session import duckdb_utc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection

COLUMNS = {
    "delays_by_hour": "origin, hour, closes_at, flights, mean_delay_min, p90_delay_min, late_share",
    "busiest_routes": "origin, destination, starts_at, closes_at, flights, flights_per_hour",
    "flights": "flight_id, carrier, flight, tail_number, origin, destination, scheduled_at, departed_at, "
    "departure_delay_min, arrived_at, arrival_delay_min, air_time_min, outcome, expires_at",
    "q1_currency": "auction, bidder, price, date_time, extra",
    "q2_selection": "auction, bidder, date_time, price",
    "q3_local_items": "seller, name, city, state, id",
    "q7_highest_bids": "starts_at, ends_at, auction, bidder, price, date_time, extra",
    "q11_user_sessions": "bidder, starts_at, last_bid_at, bid_count, ends_at",
    "q14_calculation": "auction, bidder, price, bid_time_type, date_time, extra, c_counts",
    "q17_auction_days": "auction, day, ends_at, total_bids, rank1_bids, rank2_bids, rank3_bids, min_price, max_price, "
    "avg_price, sum_price",
    "q20_expanded_bids": "auction, bidder, price, channel, url, bid_date_time, bid_extra, item_name, description, "
    "initial_bid, reserve, auction_date_time, expires, seller, category, auction_extra",
}
CLOSES_AT = {
    "delays_by_hour": "closes_at",
    "busiest_routes": "closes_at",
    "flights": "expires_at",
    **dict.fromkeys(("q7_highest_bids", "q11_user_sessions", "q17_auction_days"), "ends_at"),
}
"""Table -> when a row is final; rows of the others are so at once."""
_INSTANTS = frozenset(
    {
        *("hour", "closes_at", "starts_at", "scheduled_at", "departed_at", "arrived_at", "expires_at"),
        *("date_time", "ends_at", "last_bid_at", "day", "bid_date_time", "auction_date_time", "expires"),
    }
)
_TYPES = {
    **dict.fromkeys(("flights", "flight", "departure_delay_min", "arrival_delay_min", "air_time_min"), "BIGINT"),
    **dict.fromkeys(("mean_delay_min", "p90_delay_min", "late_share", "flights_per_hour"), "DOUBLE"),
    **dict.fromkeys(("auction", "bidder", "price", "seller", "id", "bid_count", "c_counts", "total_bids"), "BIGINT"),
    **dict.fromkeys(("rank1_bids", "rank2_bids", "rank3_bids", "min_price", "max_price", "avg_price"), "BIGINT"),
    **dict.fromkeys(("sum_price", "initial_bid", "reserve", "category"), "BIGINT"),
}
_EUROS = {table: {"price": "DECIMAL(23, 3)"} for table in ("q1_currency", "q14_calculation")}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A file of rows, and when it became visible, in seconds since the epoch; `live` while it is of the table."""

    path: str
    at: float
    live: bool


def files(place: Path) -> list[Shown]:
    """The files of a Delta table, those of older versions too, or of a directory of JSON lines."""
    log = sorted((place / "_delta_log").glob("*.json"))
    if not log:
        # A file is renamed when it is complete, which its time of change shows and its time of writing does not.
        found = [path for path in place.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
        return [Shown(path=str(path), at=path.stat().st_ctime, live=True) for path in found]
    added: dict[str, float] = {}
    removed = set()
    for commit in log:
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                added[unquote(action["add"]["path"])] = commit.stat().st_mtime
            elif "remove" in action:
                removed.add(unquote(action["remove"]["path"]))
    return [Shown(path=str(place / path), at=at, live=path not in removed) for path, at in added.items()]


def read(connection: DuckDBPyConnection, relation: str, table: str, place: Path, *, live: bool) -> int:
    """Make a view of a table's rows with the columns that engines are compared by, and `visible_at`.

    Args:
        live: only the rows of the table as it is; else those that ever were of it.

    Returns:
        Files.
    """
    shown = [file for file in files(place) if file.live or not live]
    if not shown:
        raise RuntimeError(f"{place} has no rows")
    times = ", ".join(f"('{file.path}', {file.at!r})" for file in shown)
    names = [name.strip() for name in COLUMNS[table].split(",")]
    # Instants are in UTC, as is the connection, whether they are written with a zone or not.
    columns = ", ".join(f"{name}::TIMESTAMPTZ::TIMESTAMP AS {name}" if name in _INSTANTS else name for name in names)
    listed = ", ".join(f"'{file.path}'" for file in shown)
    if (place / "_delta_log").exists():
        source = f"read_parquet([{listed}], filename = true, union_by_name = true)"
    else:
        known = _TYPES | _EUROS.get(table, {})
        types = ", ".join(f"{name}: '{known.get(name, 'VARCHAR')}'" for name in names)
        source = f"read_json([{listed}], format = 'newline_delimited', columns = {{{types}}}, filename = true)"
    connection.execute(
        f"""CREATE TEMPORARY TABLE {relation} AS
        SELECT {columns}, visible_at FROM {source} AS rows
        JOIN (VALUES {times}) AS times(filename, visible_at) USING (filename)"""
    )
    return len(shown)


def differing(table: str, before: str, places: Sequence[Path]) -> dict[str, int]:
    """Rows of the first place, and rows in which each other place differs from it, of what closed before a time."""
    names = COLUMNS[table]
    with duckdb_utc() as connection:
        for number, place in enumerate(places):
            read(connection, f"r{number}", table, place, live=True)
            if closes_at := CLOSES_AT.get(table):
                connection.execute(f"DELETE FROM r{number} WHERE {closes_at} >= TIMESTAMP '{before}'")
        counts = {"rows": connection.sql("SELECT count(*) FROM r0").fetchall()[0][0]}
        for number, place in enumerate(places[1:], 1):
            one, other = f"SELECT {names} FROM r0", f"SELECT {names} FROM r{number}"
            both_ways = f"(({one}) EXCEPT ALL ({other})) UNION ALL (({other}) EXCEPT ALL ({one}))"
            counts[str(place)] = connection.sql(f"SELECT count(*) FROM ({both_ways})").fetchall()[0][0]
        return counts
