"""Names of the metadata columns of events, without an engine's imports."""

from __future__ import annotations

PARTITION, OFFSET, APPENDED_AT = "_partition", "_offset", "_appended_at"
LATE_BY_MS, REPLAYED = "_late_by_ms", "_replayed"
REST = "_rest"
"""Of a topic that keeps them: the fields of a record that its schema does not name, as JSON."""
