"""Checks rules on the records of an Arrow batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from infra.errors import BadArgument, SchemaMismatch
from quality.rule import require_domain
from quality.rule_values import utc
from quality.rules import RECORD_RULES, Between, Matches, NotNull, OneOf, Rule

if TYPE_CHECKING:
    import pyarrow as pa

    RecordRule = NotNull | Between | OneOf | Matches


def broken(batch: pa.RecordBatch | pa.Table, rules: Sequence[Rule]) -> pa.Array:
    """The rules that each record breaks, as texts in the order of `rules`.

    Returns:
        A `list<string>` array as long as the batch; null where a record keeps every rule.

    Raises:
        BadArgument: a rule that no single record decides (`quality.rules.RECORD_RULES`).
        BadDeclaration: a rule that cannot judge its column's type.
        SchemaMismatch: a rule's column is missing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    failed: list[tuple[str, pa.Array]] = []
    for rule in rules:
        kept = _kept(batch, rule)
        if pc.all(kept, skip_nulls=True, min_count=0).as_py() is False:
            failed.append((str(rule), pc.fill_null(kept, True)))
    if not failed:
        return pa.nulls(batch.num_rows, pa.list_(pa.string()))
    return _listed(failed, batch.num_rows)


def _kept(batch: pa.RecordBatch | pa.Table, rule: Rule) -> pa.Array:
    """Whether each record keeps the rule; null where that is unknown."""
    import pyarrow as pa

    if not isinstance(rule, NotNull | Between | OneOf | Matches):
        raise BadArgument(f"The rule {rule} cannot be decided on a record alone.", hint=f"Use {sorted(RECORD_RULES)}.")
    name = rule.columns[0]
    if name not in batch.schema.names:
        raise SchemaMismatch(f"The rule {rule} reads {name}; the batch has {', '.join(batch.schema.names)}.")
    column = batch.column(name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column.type, pa.DictionaryType):
        return _judge(column, rule)
    if isinstance(rule, NotNull):
        return _judge(column.cast(column.type.value_type), rule)
    return _judge(column.dictionary, rule).take(column.indices)


def _judge(column: pa.Array, rule: RecordRule) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    require_domain(rule, _domain(column.type), str(column.type))
    match rule:
        case NotNull():
            return column.is_valid()
        case Between(low=low, high=high):
            above = None if low is None else pc.greater_equal(column, _bound(low, column.type))
            below = None if high is None else pc.less_equal(column, _bound(high, column.type))
            if above is None or below is None:
                return below if above is None else above
            return pc.and_(above, below)
        case OneOf(values=values):
            allowed = pa.array(values)
            if pa.types.is_integer(column.type):
                # A listed value may be wider than the column, or have a fraction.
                column = column.cast(allowed.type, safe=False)
            is_allowed = pc.is_in(column, value_set=allowed.cast(column.type))
            return pc.if_else(column.is_valid(), is_allowed, None) if column.null_count else is_allowed
        case Matches(portable=pattern):
            return pc.match_substring_regex(column, rf"\A(?:{pattern})\z")
        case _:
            assert_never(rule)


def _bound(value: object, of: pa.DataType) -> pa.Scalar:
    """The bound as a scalar; a timestamp without a zone is read as UTC."""
    import pyarrow as pa

    if not pa.types.is_timestamp(of):
        return pa.scalar(value)
    instant = pa.scalar(utc(value), pa.timestamp("us", tz="UTC"))
    return instant.cast(pa.timestamp("us", tz=of.tz))


def _domain(of: pa.DataType) -> str:
    import pyarrow as pa

    kinds = {
        "number": pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of),
        "string": pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of),
        "boolean": pa.types.is_boolean(of),
        "date": pa.types.is_date(of),
        "timestamp": pa.types.is_timestamp(of),
    }
    return next((kind for kind, is_it in kinds.items() if is_it), "other")


def _listed(failed: Sequence[tuple[str, pa.Array]], rows: int) -> pa.Array:
    """Turn one mask per failed rule into one list of texts per record, touching only the records that broke one."""
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
