"""Names of the metadata columns of events, without an engine's imports."""

from __future__ import annotations

PARTITION, OFFSET, APPENDED_AT = "_partition", "_offset", "_appended_at"
LATE_BY_MS, REPLAYED = "_late_by_ms", "_replayed"
LOG_OFFSET, TOMBSTONE = "log_offset", "is_tombstone"
"""Of a compacted topic, which a function reads: the order of the records of a key, and whether a record removes it."""
REST = "_rest"
"""Of a topic that keeps them: the fields of a record that its schema does not name, as JSON."""
