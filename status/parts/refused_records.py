"""Counts the quarantined records of a topic by what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from twofold.tables.declare.metadata_columns import APPENDED_AT, OFFSET, PARTITION

UNREADABLE = "is not as its schema says"
"""The one reason for all that the decoder refuses, since its texts have values of records in them."""
COLUMNS = (PARTITION, OFFSET, APPENDED_AT, "reasons")


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The quarantined records of a topic that one thing is wrong with.

    Attributes:
        reason: the rule that they break, or `UNREADABLE`.
        records: the number of them; one that breaks several rules counts for each.
        partition, offset: the place of the newest of them.
        text: why that one was refused.
    """

    reason: str
    records: int
    partition: int
    offset: int
    text: str

    def after(self, before: Refused | None) -> Refused:
        """Returns these records with those that were counted before them."""
        return replace(self, records=self.records + (before.records if before else 0))


def refused_in(rows: pa.Table, rules: Sequence[str]) -> dict[str, Refused]:
    """Counts rows of a quarantine, with `COLUMNS`, by their reasons, each with the newest as its example."""
    newest_last = [(APPENDED_AT, "ascending"), (OFFSET, "ascending")]
    rows = rows.sort_by(newest_last).combine_chunks()  # the parents of texts are counted within a chunk
    texts = pc.list_flatten(rows["reasons"]).cast(pa.string())
    reasons = pc.if_else(pc.is_in(texts, pa.array(rules, pa.string())), texts, UNREADABLE)
    broken = pa.table({"reason": reasons, "row": pc.list_parent_indices(rows["reasons"])})
    refused = {}
    by_reason = broken.group_by(["reason", "row"]).aggregate([]).group_by("reason")
    for group in by_reason.aggregate([("row", "count"), ("row", "max")]).to_pylist():
        [example] = rows.slice(group["row_max"], 1).to_pylist()
        reason = group["reason"]
        refused[reason] = Refused(
            reason=reason,
            records=group["row_count"],
            partition=example[PARTITION],
            offset=example[OFFSET],
            text=reason if reason in rules else next(text for text in example["reasons"] if text not in rules),
        )
    return refused
