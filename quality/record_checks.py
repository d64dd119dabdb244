"""Checks rules on the records of an Arrow batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from twofold.quality.rule import Rule


def broken(batch: pa.RecordBatch | pa.Table, rules: Sequence[Rule]) -> pa.Array:
    """Returns the rules that each record breaks, as texts in the order of `rules`.

    Returns:
        A `list<string>` array as long as the batch; null if a record keeps every rule.

    Raises:
        BadArgument: a rule that no single record decides (`quality.rules.RECORD_RULES`).
        BadDeclaration: a rule that cannot judge its column's type.
        SchemaMismatch: a rule's column is missing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    read = {name for rule in rules for name in rule.columns}
    columns = {name: _plain(batch.column(name)) for name in batch.schema.names if name in read}
    types = {field.name: str(field.type) for field in batch.schema} | {n: str(c.type) for n, c in columns.items()}
    failed: list[tuple[str, pa.Array]] = []
    for rule in rules:
        rule.require_fit(types)
        kept = rule.arrow(columns)
        if pc.all(kept, skip_nulls=True, min_count=0).as_py() is False:
            failed.append((str(rule), pc.fill_null(kept, True)))
    if not failed:
        return pa.nulls(batch.num_rows, pa.list_(pa.string()))
    return _listed(failed, batch.num_rows)


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns a column in one piece, by its values."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.dictionary_decode() if isinstance(whole, pa.DictionaryArray) else whole


def _listed(failed: Sequence[tuple[str, pa.Array]], rows: int) -> pa.Array:
    """Converts one mask per broken rule to one list of texts per record."""
    import numpy as np
    import pyarrow as pa

    breaks = np.vstack([~kept.to_numpy(zero_copy_only=False) for _, kept in failed])
    per_record = breaks.sum(axis=0, dtype=np.int32)
    bad = np.flatnonzero(per_record)
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(per_record, out=offsets[1:])
    rule_of_each = np.nonzero(breaks[:, bad].T)[1]
    texts = pa.array([text for text, _ in failed], pa.string()).take(pa.array(rule_of_each))
    return pa.ListArray.from_arrays(pa.array(offsets), texts, mask=pa.array(per_record == 0))
