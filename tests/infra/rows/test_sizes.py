"""What one process holds is bounded in rows and in bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from twofold.infra.rows import sizes
from twofold.infra.rows.sizes import held_if_small

SCHEMA = pa.schema([("a", pa.int64())])


def reader(*batches: int) -> pa.RecordBatchReader:
    """Batches of so many rows of eight bytes."""
    return pa.RecordBatchReader.from_batches(
        SCHEMA, [pa.record_batch([pa.array(range(rows), pa.int64())], schema=SCHEMA) for rows in batches]
    )


def test_few_rows_are_held() -> None:
    assert held_if_small(reader(3, 2), 5) == pa.table({"a": [0, 1, 2, 0, 1]}, SCHEMA)
    assert held_if_small(reader(), 5) == SCHEMA.empty_table()
    assert held_if_small(reader(3, 3), 5) is None


def test_large_rows_are_not_read_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "HELD_BYTES", 40)
    assert held_if_small(reader(5), 100) is not None
    rows = reader(5, 1, 7)
    assert held_if_small(rows, 100) is None
    assert rows.read_next_batch().num_rows == 7
