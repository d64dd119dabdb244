"""Parses PIVOT and UNPIVOT in SQL text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from twofold_algebra.reading.pivots import pivot, unpivot
from twofold_algebra.reading.plan_builder import NotUnderstood, PlanBuilder
from twofold_algebra.reading.sql_syntax import require_read
from twofold_algebra.relations import Expr, Named, Relation

ReadValue = Callable[[exp.Expr, Sequence[Relation], int], Expr]


def pivoted(below: Relation, one: exp.Pivot, read: ReadValue, build: PlanBuilder) -> Relation:
    """Returns the rows that PIVOT or UNPIVOT makes of others.

    Args:
        read: parses an expression over rows, for the relation of that number.

    Raises:
        NotUnderstood: their columns are not known, or it goes by several at once.
    """
    require_read(one)
    if below.is_open or len(one.args["fields"]) != 1:
        raise NotUnderstood("PIVOT or UNPIVOT over columns that are not known in SQL text")
    [field] = one.args["fields"]
    return (_unpivot if one.args.get("unpivot") else _pivot)(below, one, field, read, build)


def _pivot(below: Relation, one: exp.Pivot, field: exp.In, read: ReadValue, build: PlanBuilder) -> Relation:
    """Groups by all columns that neither the aggregates nor FOR name."""
    node, used = build.node(), list(field.this.find_all(exp.Column))
    for made in one.expressions:
        used += made.find_all(exp.Column)
    if not isinstance(field.this, exp.Column) or any(len(column.parts) > 1 for column in used):
        raise NotUnderstood("PIVOT by more than the name of a column in SQL text")
    names = {column.name.lower() for column in used}
    by = [column for column in below.columns if column.name.lower() not in names]
    made = [Named(each.alias, read(each, [below], node)) for each in one.expressions]
    cells = [(cell.alias, read(cell.this if cell.alias else cell, [below], node)) for cell in field.expressions]
    return pivot(below, by, read(field.this, [below], node), cells, made, build)


def _unpivot(below: Relation, one: exp.Pivot, field: exp.In, read: ReadValue, build: PlanBuilder) -> Relation:
    columns = [cell.this if cell.alias else cell for cell in field.expressions]
    if not all(isinstance(column, exp.Column) and len(column.parts) == 1 for column in columns):
        raise NotUnderstood("UNPIVOT of more than names of columns in SQL text")
    if len(one.expressions) != 1 or not isinstance(one.expressions[0], exp.Identifier):
        raise NotUnderstood("UNPIVOT to several columns in SQL text")
    node, gone = build.node(), {column.name.lower() for column in columns}
    cells = [Named(cell.alias or cell.name, read(column, [below], node)) for cell, column in zip(
        field.expressions, columns, strict=True)]  # fmt: skip
    kept = [column for column in below.columns if column.name.lower() not in gone]
    return unpivot(below, kept, cells, (field.this.name, one.expressions[0].name), build)
