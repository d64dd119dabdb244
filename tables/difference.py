"""The exact difference between rows as they should be and rows as they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from tables.writer import BEFORE, CHANGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def difference(
    should: DataFrame, live: DataFrame, key: Sequence[str], compared: Sequence[str] | None = None
) -> DataFrame:
    """Rows that are missing, extra or changed in `live`.

    Values differ by `IS DISTINCT FROM`: null equals null, NaN equals NaN, -0.0 equals 0.0.

    Args:
        should: the columns of `live`, in any order, of types that cast to its own; unique by `key`, as is `live`.
        compared: columns that make a row changed; None: all that are not of the key.

    Returns:
        The columns of `live` as they should be (as they are, for a delete), `_change` (insert, update, delete), and
        `_before_<column>` for each column that is not of the key: what `Writer.apply` takes.
    """
    from pyspark.sql import functions as F

    others = [c for c in live.columns if c not in key]
    wanted = should.select(*(F.col(c).cast(t).alias(c) for c, t in live.dtypes)).withColumn("_in", F.lit(True))
    present = live.select(*(F.col(c).alias(f"_live_{c}") for c in live.columns)).withColumn("_was", F.lit(True))
    same_key = reduce(lambda a, b: a & b, (F.col(c).eqNullSafe(F.col(f"_live_{c}")) for c in key))
    changed = reduce(
        lambda a, b: a | b,
        (~F.col(c).eqNullSafe(F.col(f"_live_{c}")) for c in (others if compared is None else compared)),
        F.lit(False),
    )
    change = F.when(F.col("_was").isNull(), "insert").when(F.col("_in").isNull(), "delete").when(changed, "update")
    joined = wanted.join(present, same_key, "full_outer").withColumn(CHANGE, change).where(F.col(CHANGE).isNotNull())
    return joined.select(
        *(F.when(F.col("_in"), F.col(c)).otherwise(F.col(f"_live_{c}")).alias(c) for c in [*key, *others]),
        CHANGE,
        *(F.col(f"_live_{c}").alias(BEFORE + c) for c in others),
    )
