"""Marks in the log of the captured database, which every connector meets at the same place."""

from __future__ import annotations

from twofold.features.capture.captured_table import MARK_PREFIX
from twofold_algebra.sql.names import POSTGRES

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text"
WRITE_MARK = f"SELECT pg_logical_emit_message(false, {POSTGRES.literal(MARK_PREFIX)}, {_NOW})"
"""A mark with the database's time, in microseconds. Changes committed before it precede it in each topic."""
MARK_CHANGES = (
    f"{WRITE_MARK}, set_config('twofold.seen', seen, false), set_config('twofold.marked', {_NOW}, false) "
    "FROM (SELECT pg_current_snapshot()::text AS seen) AS transactions "
    "WHERE seen IS DISTINCT FROM current_setting('twofold.seen', true) "
    f"OR {_NOW}::bigint >= coalesce(nullif(current_setting('twofold.marked', true), ''), '0')::bigint + 60000000"
)
"""A mark if a transaction has ended since the one that this session wrote before it, or if that is a minute ago."""
