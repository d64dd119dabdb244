"""Compares two tables row by row and column by column, with DuckDB."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from twofold.infra.errors import SchemaMismatch
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    import pyarrow as pa

TOLERANCE = 1e-9
"""Floats are equal when they differ by at most this share of the greater one: sums depend on the order of addends."""

EXAMPLES = 20


@dataclass(frozen=True, kw_only=True)
class TableComparison:
    """The differences between a live table and the expected one.

    Attributes:
        rows: of the expected table.
        missing: rows that the live table lacks.
        extra: rows that only it has, including repeated rows of one key.
        changed: rows of the same key with other values.
        examples: some differing rows: `difference`, then every column, key columns as they are and others as pairs
            of `expected` and `live`.
    """

    rows: int
    missing: int
    extra: int
    changed: int
    examples: pa.Table

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.changed)


def compare(
    expected: pa.Table, live: pa.Table, key: Sequence[str], approximate: Mapping[str, float] | None = None
) -> TableComparison:
    """Finds every difference; nulls equal nulls, NaN equals NaN, floats are equal within `TOLERANCE`.

    Args:
        expected: exact, even if the live table is not.
        live: columns whose names begin with `_` are the platform's own and are left out.
        key: columns that identify a row; rows of a repeated key are paired in order.
        approximate: column -> the share of the greater value by which it may differ, 0: not at all; one of an infinite
            share, such as a sketch, is left out of both tables.

    Raises:
        SchemaMismatch: the columns or their types differ.
    """
    within = dict(approximate or {})
    left_out = {name for name, share in within.items() if math.isinf(share)}
    live = live.select([name for name in live.column_names if not name.startswith("_") and name not in left_out])
    expected = expected.select([name for name in expected.column_names if name not in left_out])
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("expected_rows", expected)
        connection.register("live_rows", live)
        types = _types(connection, "expected_rows")
        _require_same(types, _types(connection, "live_rows"))
        connection.execute(_joined(types, key, within))
        counts = dict(connection.execute("SELECT difference, count(*) FROM joined GROUP BY ALL").fetchall())
        columns = ", ".join(
            DUCKDB.name(c) if c in key else f"{{'expected': e_{i}, 'live': l_{i}}} AS {DUCKDB.name(c)}"
            for i, c in enumerate(types)
        )
        examples = connection.execute(
            f"SELECT difference, {columns} FROM joined WHERE difference IS NOT NULL "
            f"ORDER BY {DUCKDB.names(key)} LIMIT {EXAMPLES}"
        ).to_arrow_table()
    return TableComparison(
        rows=expected.num_rows,
        missing=counts.get("missing", 0),
        extra=counts.get("extra", 0),
        changed=counts.get("changed", 0),
        examples=examples,
    )


def _joined(types: dict[str, str], key: Sequence[str], within: Mapping[str, float]) -> str:
    """Writes a full outer join on the key and on the position among rows of equal key."""
    keys, rest = DUCKDB.names(key), DUCKDB.names(types)
    columns = [
        *(f"coalesce(e.{name}, l.{name}) AS {name}" for name in map(DUCKDB.name, key)),
        *(f"e.{name} AS e_{i}, l.{name} AS l_{i}" for i, name in enumerate(map(DUCKDB.name, types))),
    ]
    differs = " OR ".join([_differs(c, types[c], within.get(c)) for c in types if c not in key] or ["false"])
    met = " AND ".join(f"e.{name} IS NOT DISTINCT FROM l.{name}" for name in map(DUCKDB.name, [*key, "#nth"]))
    numbered = f'SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {rest}) AS "#nth" FROM'
    return f"""
        CREATE TEMP TABLE joined AS
        SELECT {", ".join(columns)},
            CASE WHEN l."#nth" IS NULL THEN 'missing' WHEN e."#nth" IS NULL THEN 'extra'
                 WHEN {differs} THEN 'changed' END AS difference
        FROM ({numbered} expected_rows) e FULL JOIN ({numbered} live_rows) l ON {met}
    """


def _differs(column: str, kind: str, share: float | None) -> str:
    e, l = f"e.{DUCKDB.name(column)}", f"l.{DUCKDB.name(column)}"  # noqa: E741 - as in the query
    different = f"{e} IS DISTINCT FROM {l}"
    is_float = kind in ("DOUBLE", "FLOAT")
    if not share and not is_float:
        return different
    near = f"abs({e} - {l}) <= {TOLERANCE if share is None else share} * greatest(abs({e}), abs({l}))"
    if is_float:
        near = f"isfinite({e}) AND isfinite({l}) AND {near}"
    return f"({different} AND NOT coalesce({near}, false))"


def _types(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    return {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE {relation}").fetchall()}


def _require_same(expected: dict[str, str], live: dict[str, str]) -> None:
    wrong = [
        f"{column} is {live.get(column, 'missing')}, expected {expected.get(column, 'no such column')}"
        for column in dict.fromkeys([*expected, *live])
        if expected.get(column) != live.get(column)
    ]
    if wrong:
        raise SchemaMismatch(f"The tables cannot be compared: {'; '.join(wrong)}.")
