"""Expressions by which inputs have the columns of `recompute_by`: columns, fields in them, or what Spark computes."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from infra.sql.impure_functions import names
from infra.sql.names import DUCKDB
from tables.declare.table import Table, columns_read, restricting
from tables.declare.topic import Topic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_ADDED = "_scope_"
_CALLED = re.compile(r"(\w+)\(")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'")
_OPERATOR = re.compile(r"[-+*/%\[]| div |AS (?!DATE|STRING|TIMESTAMP)")
_TOTAL = names(
    """
    btrim coalesce concat ifnull initcap isnotnull isnull lcase left length lower ltrim nvl reverse right rtrim substr
    substring trim ucase upper
    """
)
_OF_TIMES = names(
    """
    cast date_trunc day dayofmonth dayofweek dayofyear from_utc_timestamp hour last_day minute month quarter second
    to_date to_utc_timestamp trunc weekday weekofyear year
    """
)
"""Functions that are total, and those that are so of times; of a text that is none they fail, under ANSI rules."""
_log = logging.getLogger("twofold.scopes")
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+\Z")


def scope_values_in(table: Table, source: Topic | Table, columns: Collection[str]) -> dict[str, str]:
    """Column of `recompute_by` -> the column of changed rows of an input that holds its value, where one does."""
    numbered = enumerate(zip(table.recompute_by, table.scope_in(source), strict=True))
    names = {column: text if text in columns else f"{_ADDED}{n}" for n, (column, text) in numbered if text}
    return {column: name for column, name in names.items() if name in columns}


def with_scope_values(spark: SparkSession, table: Table, source: Topic | Table, rows: pa.Table) -> pa.Table:
    """Changed rows of an input with a column `_scope_N` for each expression that is column N of `recompute_by`.

    Spark computes them: the values are compared with what Spark made of the same rows. Where it cannot, as of rows that
    the table's function leaves out before it divides, there are none, and the rows matter to all values.
    """
    columns = rows.column_names
    added = {n: text for n, text in restricting(table, source, columns).items() if text not in columns}
    if not added:
        return rows
    from pyspark.errors import PySparkException

    from infra.rows.rows import in_spark

    frame = in_spark(spark, rows.select([c for c in columns if c in columns_read(added.values())]))
    try:
        values = frame.selectExpr(*(f"{text} AS {_ADDED}{n}" for n, text in added.items())).toArrow()
    except PySparkException as error:
        _log.warning("all scopes of %s are recomputed for %s: %s", table.full_name, source.full_name, str(error)[:200])
        return rows
    for name in values.column_names:
        rows = rows.append_column(name, values[name])
    return rows


def is_total(text: str, kinds: Mapping[str, pa.DataType]) -> bool:
    """Whether an expression has a value for every row of an input, also of one that the table's function leaves out.

    Args:
        kinds: column of the input -> its type.
    """
    import pyarrow as pa

    text = _QUOTED.sub("''", text)
    called = set(_CALLED.findall(text.lower()))
    of_times = all(pa.types.is_temporal(kinds[name]) for name in columns_read([text]) & kinds.keys())
    return not _OPERATOR.search(text) and called <= (_TOTAL | _OF_TIMES if of_times else _TOTAL)


def duckdb_sql(text: str, columns: Collection[str]) -> str | None:
    """A column, or a field in one, as DuckDB reads it; None: an expression that the two engines may not agree on."""
    if text in columns:
        return DUCKDB.name(text)
    if _PATH.match(text) and text.partition(".")[0] in columns:
        return DUCKDB.name(*text.split("."))
    return None
