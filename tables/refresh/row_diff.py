"""The exact difference between the expected rows and the live rows of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from infra.delta.delta_writer import BEFORE, CHANGE
from infra.duckdb_session import query
from tables.declare.table import Table
from tables.refresh.json_values import to_plain_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROUNDING = {"double": 1e-12, "float": 1e-6}
"""Type of a column -> the relative error that another order of additions may make."""
_CANCELLED = 1e-12  # what is left of additions that cancel has no relative error


def difference_of_frames(
    should: DataFrame,
    live: DataFrame,
    key: Sequence[str],
    compared: Sequence[str] | None = None,
    approximate: Mapping[str, float] | None = None,
) -> DataFrame:
    """Rows that are missing, extra or changed in `live`.

    Values differ by `IS DISTINCT FROM`: null equals null, NaN equals NaN, -0.0 equals 0.0. Approximate ones differ
    when they are further apart than their two errors together, of the greater of them, and than 1e-12.

    Args:
        should: the columns of `live`, in any order, of types that cast to its own; unique by `key`, as is `live`.
        compared: columns that make a row changed; None: all that are not of the key.
        approximate: column -> its relative error; of infinity, it makes no row changed. Doubles and floats that are
            not in it have the error of rounding. None: all values are exact.

    Returns:
        The columns of `live` as they should be (as they are, for a delete), `_change` (insert, update, delete), and
        `_before_<column>` for each column that is not of the key: what `Writer.apply` takes.
    """
    from pyspark.sql import functions as F

    others = [c for c in live.columns if c not in key]
    wanted = should.select(*(F.col(c).cast(t).alias(c) for c, t in live.dtypes)).withColumn("_in", F.lit(True))
    present = live.select(*(F.col(c).alias(f"_live_{c}") for c in live.columns)).withColumn("_was", F.lit(True))
    same_key = reduce(and_, (F.col(c).eqNullSafe(F.col(f"_live_{c}")) for c in key))
    errors = _errors(dict(live.dtypes), approximate)
    wrap = {name: "array_sort(map_entries({}))" for name, kind in live.dtypes if kind.startswith("map<")}
    unlike = [
        _unlike(f"`{c}`", f"`_live_{c}`", errors.get(c), wrap.get(c, "{}"))
        for c in (others if compared is None else compared)
    ]
    changed = F.expr(" OR ".join(filter(None, unlike)) or "false")
    change = F.when(F.col("_was").isNull(), "insert").when(F.col("_in").isNull(), "delete").when(changed, "update")
    joined = wanted.join(present, same_key, "full_outer").withColumn(CHANGE, change).where(F.col(CHANGE).isNotNull())
    return joined.select(
        *(F.when(F.col("_in"), F.col(c)).otherwise(F.col(f"_live_{c}")).alias(c) for c in [*key, *others]),
        CHANGE,
        *(F.col(f"_live_{c}").alias(BEFORE + c) for c in others),
    )


def difference_of_tables(
    should: pa.Table,
    live: pa.Table,
    key: Sequence[str],
    compared: Sequence[str] | None = None,
    approximate: Mapping[str, float] | None = None,
) -> pa.Table:
    """The difference of rows in memory: by DuckDB, in this process, in tenths of a second less.

    Args:
        should, live, key, compared, approximate: as for `difference_of_frames`.

    Returns:
        The columns of `difference_of_frames`, of the types of `live`.
    """
    others = [c for c in live.column_names if c not in key]
    same_key = " AND ".join(f's."{c}" IS NOT DISTINCT FROM l."{c}"' for c in key)
    errors = _errors({f.name: str(f.type) for f in live.schema}, approximate)
    wrap = {field.name: "list_sort(map_entries({}))" for field in live.schema if pa.types.is_map(field.type)}
    unlike = [
        _unlike(f's."{c}"', f'l."{c}"', errors.get(c), wrap.get(c, "{}"))
        for c in (others if compared is None else compared)
    ]
    changed = " OR ".join(filter(None, unlike))
    columns = [f'CASE WHEN s._in THEN s."{c}" ELSE l."{c}" END AS "{c}"' for c in [*key, *others]]
    columns += [
        (
            f"CASE WHEN l._was IS NULL THEN 'insert' WHEN s._in IS NULL THEN 'delete' "
            f"WHEN {changed or 'false'} THEN 'update' END AS {CHANGE}"
        )
    ]
    columns += [f'l."{c}" AS "{BEFORE}{c}"' for c in others]
    found = query(
        f"SELECT * FROM (SELECT {', '.join(columns)} FROM (SELECT *, true AS _in FROM should) s "
        f"FULL OUTER JOIN (SELECT *, true AS _was FROM live) l ON {same_key}) WHERE {CHANGE} IS NOT NULL",
        should=should.select(live.column_names).cast(live.schema),
        live=live,
    )
    types = {f.name: f.type for f in live.schema} | {CHANGE: pa.string()}
    return found.cast(pa.schema([(n, types[n.removeprefix(BEFORE)]) for n in found.column_names]))


def matching(
    rows: DataFrame, others: DataFrame, key: Sequence[str], how: Literal["left_semi", "left_anti"]
) -> DataFrame:
    """The rows of whose keys the others have one (`left_semi`) or none (`left_anti`); nulls of a key are equal."""
    from pyspark.sql import functions as F

    keys = others.select(*(F.col(c).alias(f"_other_{c}") for c in key))
    return rows.join(keys, reduce(and_, (F.col(c).eqNullSafe(F.col(f"_other_{c}")) for c in key)), how)


def _errors(types: Mapping[str, str], approximate: Mapping[str, float] | None) -> dict[str, float]:
    """Column -> its relative error; a column that is not in it is exact."""
    if approximate is None:
        return {}
    return {column: _ROUNDING[kind] for column, kind in types.items() if kind in _ROUNDING} | dict(approximate)


def _unlike(should: str, live: str, error: float | None, wrap: str) -> str | None:
    """SQL of both engines: the values differ; None where they never do.

    Args:
        wrap: makes of a value one that can be compared: of a map its entries in one order.
    """
    distinct = f"({wrap.format(should)} IS DISTINCT FROM {wrap.format(live)})"
    if not error:
        return distinct
    if math.isinf(error):
        return None
    apart = f"abs({should} - {live})"
    within = f"greatest({2 * error!r} * greatest(abs({should}), abs({live})), {_CANCELLED!r})"
    # NaN is greater than all numbers: a distance that is not finite is within no error.
    near = f"{apart} <= {within} AND {apart} < CAST('Infinity' AS DOUBLE)"
    return f"({distinct} AND NOT coalesce({near}, false))"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A row that is not what its recomputation says.

    Attributes:
        change: what would make it right: insert, update or delete.
        before, should: the columns that differ, as JSON can hold them; all columns of a missing or an extra row.
    """

    key: Mapping[str, Any]
    change: str
    before: Mapping[str, Any]
    should: Mapping[str, Any]


_KEPT = 1_000  # rows of a difference that a run keeps


def differences_of(table: Table, rows: pa.Table) -> list[Difference]:
    """The rows of a difference, by their keys and the columns that differ."""
    found = []
    for row in rows.slice(0, _KEPT).to_pylist():
        should = {
            c: to_plain_json(v)
            for c, v in row.items()
            if c not in table.primary_key and c != CHANGE and not c.startswith(BEFORE)
        }
        before = {c: to_plain_json(row[BEFORE + c]) for c in should}
        differ = [c for c in should if row[CHANGE] != "update" or should[c] != before[c]]
        found.append(
            Difference(
                key={c: to_plain_json(row[c]) for c in table.primary_key},
                change=row[CHANGE],
                before={} if row[CHANGE] == "insert" else {c: before[c] for c in differ},
                should={} if row[CHANGE] == "delete" else {c: should[c] for c in differ},
            )
        )
    return found
