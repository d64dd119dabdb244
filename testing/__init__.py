"""Tests of one's own tables: sample rows in, rows out, and that the stream, the batch and DuckDB say the same."""

from twofold.testing.assertions import assert_events, assert_parity, assert_rows
from twofold.testing.sample_records import Faults, records_of
from twofold.testing.worlds import Keyed, World

__all__ = ["Faults", "Keyed", "World", "assert_events", "assert_parity", "assert_rows", "records_of"]
