"""The expressions by which inputs have the columns of `recompute_by`, over a row of the input."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tables.algebra.expression_sql import column_of, value_of
from tables.algebra.relations import Column, Expr, parts

if TYPE_CHECKING:
    from tables.declare.table import Table
    from tables.declare.topic import Topic


def scope_values(table: Table, source: Topic | Table) -> tuple[Expr | None, ...]:
    """Returns the values by which an input has the columns of `recompute_by`, in order; None: it has nothing."""
    named = zip(table.recompute_by, table.scope_in(source), strict=True)
    return tuple(column_of(text) if text == column else text and value_of(text) for column, text in named)  # type: ignore[misc]


def restricting(table: Table, source: Topic | Table, columns: Collection[str]) -> dict[int, Expr]:
    """Number of a column of `recompute_by` -> the value that an input with these columns has for it, if it has one."""
    values = enumerate(scope_values(table, source))
    return {n: one for n, one in values if one and (read := names_in(one)) and read <= set(columns)}


def columns_read(table: Table, source: Topic | Table) -> set[str]:
    """Returns the columns of an input that have the values of `recompute_by`, be they there or not."""
    return {name for one in scope_values(table, source) if one for name in names_in(one)}


def names_in(value: Expr) -> set[str]:
    """Returns the columns that a value is made of."""
    return {part.name for part in parts(value) if isinstance(part, Column)}
