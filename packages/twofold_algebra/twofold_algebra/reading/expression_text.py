"""Reads text of a declaration that is an expression over a row."""

from __future__ import annotations

from functools import lru_cache

from twofold_algebra.dependencies import unmentioned
from twofold_algebra.expression_sql import ROW, column_of, sql_of
from twofold_algebra.reading.plan_builder import NotUnderstood, PlanBuilder
from twofold_algebra.relations import Expr


@lru_cache(1_000)
def value_of(written: str) -> Expr:
    """Parses a column, a field of one, or an expression in Spark SQL over the columns of one relation.

    Raises:
        NotUnderstood: a part that the algebra does not express.
    """
    if written.isidentifier():
        return column_of(written)
    from twofold_algebra.reading.sql_plan import SqlReader  # with sqlglot

    builder = PlanBuilder({ROW: None})
    return unmentioned(SqlReader(builder, {}).value(written, [builder.source(ROW)], builder.node()))


def fault_of(written: str) -> str:
    """Returns why SQL is no value of one row, or one that cannot be written again; empty: it is one that can."""
    try:
        return "" if sql_of(value_of(written)) else "is no value of one row that can be written again"
    except NotUnderstood as fault:
        return f"has {fault}"
