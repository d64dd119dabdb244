"""Values of `recompute_by` in the rows of inputs: columns, fields in them, or what Spark computes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold_algebra.expression_sql import names_in, sql_of
from twofold_algebra.relations import Call, Column, Expr, Literal
from twofold_algebra.sql.impure_functions import names
from twofold_algebra.sql.names import SPARK

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_ADDED = "_scope_"
_TOTAL = names(
    """
    btrim coalesce concat field ifnull initcap isnotnull isnull lcase left length lower ltrim nvl reverse right rtrim
    substr substring trim ucase upper
    """
)
_OF_TIMES = names(
    """
    cast date_trunc day dayofmonth dayofweek dayofyear from_utc_timestamp hour last_day minute month quarter second
    to_date to_utc_timestamp trunc weekday weekofyear year
    """
)
"""Functions that are total, and those that are so of times; of a text that is none they fail, under ANSI rules."""
_TYPES = frozenset({"DATE", "STRING", "TIMESTAMP"})
"""What a time can be cast to, whichever it is."""
_log = logging.getLogger("twofold.scopes")


def scope_values_in(table: Table, source: Topic | Table, columns: Collection[str]) -> dict[str, str]:
    """Maps columns of `recompute_by` to the columns of changed input rows that have their values."""
    numbered = enumerate(zip(table.recompute_by, table.scope_values(source), strict=True))
    held = {column: _held_by(n, value, columns) for n, (column, value) in numbered if value}
    return {column: name for column, name in held.items() if name in columns}


def _held_by(number: int, value: Expr, columns: Collection[str]) -> str:
    return value.name if isinstance(value, Column) and value.name in columns else f"{_ADDED}{number}"


def with_scope_values(spark: SparkSession, table: Table, source: Topic | Table, rows: pa.Table) -> pa.Table:
    """Adds a column `_scope_N` to changed input rows for each computed column N of `recompute_by`.

    Spark computes them: the values are compared with what Spark made of the same rows. If it cannot, as of rows that
    the table's function leaves out before it divides, there are none, and the rows matter to all values.
    """
    added = {n: v for n, v in table.restricting(source, rows.column_names).items() if not isinstance(v, Column)}
    if not added:
        return rows
    from pyspark.errors import PySparkException

    from twofold.infra.rows.rows import in_spark

    read = {name for value in added.values() for name in names_in(value)}
    frame = in_spark(spark, rows.select([c for c in rows.column_names if c in read]))
    try:
        values = frame.selectExpr(*(f"{sql_of(v)} AS {SPARK.name(f'{_ADDED}{n}')}" for n, v in added.items())).toArrow()
    except PySparkException as error:
        _log.warning("all scopes of %s are recomputed for %s: %s", table.full_name, source.full_name, str(error)[:200])
        return rows
    for name in values.column_names:
        rows = rows.append_column(name, values[name])
    return rows


def is_total(value: Expr, kinds: Mapping[str, pa.DataType]) -> bool:
    """Whether an expression has a value for every input row, also for those that the table's function filters out.

    Args:
        kinds: column of the input -> its type.
    """
    import pyarrow as pa

    match value:
        case Column() | Literal():
            return True
        case Call(function="cast", arguments=(_, Literal(text=kind))) if kind not in _TYPES:
            return False
        case Call(function=function):
            is_of_times = all(pa.types.is_temporal(kinds[name]) for name in names_in(value))
            is_known = function in (_TOTAL | _OF_TIMES if is_of_times else _TOTAL)
            return is_known and all(is_total(one, kinds) for one in value.arguments)
    return False
