"""Counts records by how late they were, between fixed bounds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LATENESS = "lateness"
"""The key under which a commit of ingest counts its records: lower bound, milliseconds -> records."""
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
BOUNDS_MS = (
    *(0, 1_000, 10_000, _MINUTE, 5 * _MINUTE, 15 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY),
)
"""Each class of lateness begins at one of them; the first one has all records that were ahead, too."""


def lateness_counts(late_by_ms: pa.ChunkedArray) -> dict[int, int]:
    """Counts values of `_late_by_ms` by the bound at or below them, without nulls, which are not known."""
    values = pc.drop_null(late_by_ms).to_numpy()
    classes = np.searchsorted(np.array(BOUNDS_MS), np.maximum(values, 0), side="right") - 1
    counts = np.bincount(classes, minlength=len(BOUNDS_MS)).tolist()
    return {bound: n for bound, n in zip(BOUNDS_MS, counts, strict=True) if n}
