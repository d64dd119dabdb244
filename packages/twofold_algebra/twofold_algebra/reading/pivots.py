"""Builds the rows of `pivot` and `unpivot`, whose columns come from values, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence

from twofold_algebra.reading.plan_builder import NotUnderstood, PlanBuilder
from twofold_algebra.relations import Expr, Generated, Literal, Named, Opaque, Relation


def pivot(
    below: Relation,
    by: Sequence[Named],
    value: Expr,
    cells: Sequence[tuple[str, Expr]],
    made: Sequence[Named],
    build: PlanBuilder,
) -> Relation:
    """Builds a row for each group, with a column for each constant that a value can be and each aggregate.

    Args:
        cells: the constants, with a name if they are given one.
    """
    node = build.node()
    columns = [
        Named(_name_of(name or _written(cell), one.name, len(made)), Opaque(node, "PIVOT", (one.value, value, cell)))
        for name, cell in cells
        for one in made
    ]
    return build.grouped(below, by, [*by, *columns])


def unpivot(
    below: Relation, kept: Sequence[Named], cells: Sequence[Named], names: tuple[str, str], build: PlanBuilder
) -> Relation:
    """Builds a row for each row and each of some columns: the columns kept, the name of that one and its value.

    Raises:
        NotUnderstood: two of them have one name.
    """
    if len({cell.name.lower() for cell in cells}) < len(cells):
        raise NotUnderstood("UNPIVOT of one name twice")
    rows = build.call("posexplode", [cell.value for cell in cells], build.node())
    new = [Named(name, Generated(build.node(), name, (rows,))) for name in names]
    return build.projected(below, [*kept, *new])


def _name_of(cell: str, aggregate: str, count: int) -> str:
    """Returns the name that Spark gives a column; empty: it goes by how Spark writes an expression."""
    if count == 1:
        return cell
    return f"{cell}_{aggregate}" if cell and aggregate else ""


def _written(cell: Expr) -> str:
    """Returns a constant as Spark writes it as a text; empty: not known."""
    if not isinstance(cell, Literal):
        return ""
    is_plain = cell.sql.startswith("'") or cell.text.lstrip("-").isdecimal()
    return cell.text if is_plain else cell.text.lower() if cell.sql.lower() in ("true", "false", "null") else ""
