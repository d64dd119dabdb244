"""Finds changes of a captured table that its events lack."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tables.engine.delta.lake import QUARANTINE, Lake


def changes_fault(lake: Lake, topic: str) -> str:
    """Why tables may differ from the captured one though all changes arrive; empty: they do not.

    A change that is refused is in quarantine. A snapshot that was interrupted begins again, of a later moment, and no
    change says that a row is deleted which was deleted between the two.
    """
    if not lake.exists(topic):
        return ""
    refused = lake.rows(f"{topic}{QUARANTINE}") if lake.exists(f"{topic}{QUARANTINE}") else 0
    if refused:
        return (
            f"its tables lack changes that were refused: {refused:,}, with their reasons in {topic}{QUARANTINE} "
            "(`./twofold sql` shows them)"
        )
    rows = lake.open(topic).scan(columns=["cdc_commit_lsn"], predicate="cdc_op = 'snapshot' AND cdc_lsn = 0")
    moments = pc.unique(pa.table(rows)["cdc_commit_lsn"])
    if len(moments) < 2:
        return ""
    first, last = pc.min(moments).as_py(), pc.max(moments).as_py()
    return (
        f"its snapshot of LSN {first} was interrupted and begun again at {last}: rows that were deleted in between may "
        "still be in its tables"
    )
