"""Seconds from the last record of a row to the row's being visible as it ends up, by files and when they were shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from peers import engine_results, peer_workload
from twofold.infra.duckdb_session import duckdb_utc

if TYPE_CHECKING:
    from collections.abc import Sequence

# A row of a window is whole once its last departure was sent, a landed flight once its arrival was.
_WHOLE = {
    "delays_by_hour": """
        SELECT row.*, max(sent.left_at) AS whole_at FROM final AS row JOIN sent
        ON sent.origin = row.origin AND sent.occurred_at >= row.hour AND sent.occurred_at < row.closes_at GROUP BY ALL
    """,
    "busiest_routes": """
        SELECT row.*, max(sent.left_at) AS whole_at FROM final AS row JOIN sent
        ON sent.origin = row.origin AND sent.destination = row.destination
        AND sent.occurred_at >= row.starts_at AND sent.occurred_at < row.closes_at GROUP BY ALL
    """,
    "flights": """
        SELECT row.*, sent.landing_at AS whole_at FROM final AS row JOIN sent USING (flight_id)
        WHERE row.outcome = 'landed'
    """,
}


def seconds(table: str, place: Path, first: int, left_at: Sequence[float], since: float) -> list[float]:
    """Of each row that was whole since a time: seconds until it was visible with the values that it ends up with.

    Args:
        first: number of the first flight that was sent.
        left_at: when each departure was sent, seconds since the epoch; with a departure its arrivals.
    """
    lag = peer_workload.LONGEST_FLIGHTS
    sent = [peer_workload.departure(first + n) for n in range(len(left_at))]
    columns = {
        "flight_id": [row["flight_id"] for row in sent],
        "origin": [row["origin"] for row in sent],
        "destination": [row["destination"] for row in sent],
        "occurred_at": pa.array(
            [peer_workload.departed_at(first + n).replace(tzinfo=None) for n in range(len(left_at))]
        ),
        "left_at": list(left_at),
        "landing_at": [left_at[n + lag] if n + lag < len(left_at) else None for n in range(len(left_at))],
    }
    names = engine_results.COLUMNS[table]
    # What came in the last moments may not be visible, or not be whole, when all stops.
    end = (peer_workload.departed_at(first + len(left_at)) - 4 * peer_workload.WATERMARK).replace(tzinfo=None)
    with duckdb_utc() as connection:
        connection.register("sent", pa.table(columns))
        engine_results.read(connection, "ever", table, place, live=False)
        engine_results.read(connection, "now", table, place, live=True)
        closed = "TRUE" if table == "flights" else f"closes_at < TIMESTAMP '{end}'"
        connection.execute(f"CREATE TEMPORARY TABLE final AS SELECT {names} FROM now WHERE {closed}")
        connection.execute(f"CREATE TEMPORARY TABLE whole AS {_WHOLE[table]}")
        connection.execute(f"DELETE FROM whole WHERE whole_at IS NULL OR whole_at < {since!r}")
        same = " AND ".join(f"ever.{c.strip()} IS NOT DISTINCT FROM whole.{c.strip()}" for c in names.split(","))
        key = "flight_id" if table == "flights" else "origin, closes_at"
        shown = f"""
            SELECT min(ever.visible_at) - any_value(whole_at) FROM whole JOIN ever USING ({key})
            WHERE {same} GROUP BY {", ".join(f"whole.{c.strip()}" for c in names.split(","))}
        """
        return [row[0] for row in connection.sql(shown).fetchall()]
