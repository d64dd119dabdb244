"""Words for people: what changed a row, and how."""

from __future__ import annotations

CHANGES = {"insert": "added", "update": "changed", "delete": "removed", "none": "examined, and found right"}
CAUSES = {
    "stream": "the stream",
    "late": "reconcile, for late records",
    "upstream": "reconcile, for a corrected input",
    "replay": "reconcile, for replayed records",
    "backfill": "a backfill",
    "definition": "a backfill, for a new definition",
    "repair": "a repair that a person approved",
    "rebuild": "a rebuild from the log",
    "rollback": "a rollback of a run",
    "unknown": "a writer outside of the platform",
}
