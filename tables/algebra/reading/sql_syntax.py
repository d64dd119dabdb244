"""Syntax of SQL text: its dialect, the parts of it that are read, the sets of columns that GROUP BY goes by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from tables.algebra.reading.plan_builder import NotUnderstood, cube_sets, rollup_sets
from tables.algebra.relations import Aggregate, Generated, Named, Rest, Windowed, parts

_WITH_SYNTAX = frozenset({"CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "OVERLAY", "SUBSTRING"})
"""Functions whose arguments are not separated by commas alone."""


class _Dialect(Spark):
    """Spark's dialect, in which functions keep the names that are written."""

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser for name, parser in Spark.Parser.FUNCTION_PARSERS.items() if name in _WITH_SYNTAX
        }


_TAIL = {"with_", "with", "order", "sort", "limit", "offset"}
_READ: dict[type[exp.Expr], set[str]] = {
    exp.Select: {*_TAIL, "from_", "from", "joins", "where", "group", "having", "distinct", "expressions", "hint"},
    exp.SetOperation: {*_TAIL, "this", "expression", "distinct", "by_name"},
    exp.Subquery: {*_TAIL, "this", "alias", "pivots"},
    exp.Table: {"this", "db", "catalog", "alias", "joins", "pivots"},
    exp.Pivot: {"expressions", "fields", "unpivot", "include_nulls", "alias", "columns", "pivot_column_naming"},
    exp.Join: {"this", "side", "kind", "method", "on", "using", "hint"},
    exp.Group: {"expressions", "all", "rollup", "cube"},
}
"""The parts of what makes rows that are read."""


def require_read(one: exp.Expr) -> None:
    """Refuses rows if a part of their text is not read, which would be taken for those of the rest."""
    for kind, read in _READ.items():
        if isinstance(one, kind) and (unread := sorted({name for name, part in one.args.items() if part} - read)):
            raise NotUnderstood(f"{unread[0].strip('_').upper()} in SQL text")


def parsed(written: str) -> exp.Expr:
    """Parses a text.

    Raises:
        NotUnderstood: it cannot be parsed.
    """
    try:
        return sqlglot.parse_one(written, read=_Dialect)
    except sqlglot.errors.SqlglotError as error:
        raise NotUnderstood(f"SQL text that cannot be parsed ({str(error).splitlines()[0][:60]})") from error


def groupings(group: exp.Group) -> tuple[list[exp.Expr], list[frozenset[int]]]:
    """Returns the terms of GROUP BY, and the places in them that each grouping goes by; none: there is one, by all."""
    terms: list[exp.Expr] = []

    def placed(written: exp.Expr) -> frozenset[int]:
        found = written.expressions if isinstance(written, exp.Tuple) else [written.unnest()]
        terms.extend(one for one in found if one not in terms)
        return frozenset(terms.index(one) for one in found)

    sets = [frozenset[int]()]
    for one in group.expressions:
        own = _sets_of(one, placed) if isinstance(one, exp.Rollup | exp.Cube | exp.GroupingSets) else [placed(one)]
        sets = [before | places for before in sets for places in own]
    for kind, sets_of in (("rollup", rollup_sets), ("cube", cube_sets)):
        for one in group.args.get(kind) or ():  # GROUP BY a, b WITH ROLLUP
            if one.expressions or len(sets) > 1:
                raise NotUnderstood("grouping sets after GROUP BY in SQL text")
            sets = sets_of([frozenset({n}) for n in range(len(terms))])
    return terms, sets if len(sets) > 1 else []


def _sets_of(one: exp.Expr, placed: Callable[[exp.Expr], frozenset[int]]) -> list[frozenset[int]]:
    """Returns the places that each grouping of ROLLUP, CUBE or GROUPING SETS goes by."""
    if isinstance(one, exp.GroupingSets):
        nested = (exp.Rollup, exp.Cube, exp.GroupingSets)
        return [found for part in one.expressions for found in (
            _sets_of(part, placed) if isinstance(part, nested) else [placed(part)])]  # fmt: skip
    each = [placed(part) for part in one.expressions]
    return rollup_sets(each) if isinstance(one, exp.Rollup) else cube_sets(each)


def all_of_rows(columns: Sequence[Named]) -> list[Named]:
    """Returns the columns that GROUP BY ALL goes by: those of single rows."""
    made = [any(isinstance(part, Aggregate) for part in parts(column.value)) for column in columns]
    mixed = [any(isinstance(part, Windowed | Generated | Rest) for part in parts(c.value)) for c in columns]
    whole = [isinstance(column.value, Aggregate) for column in columns]
    if any(mixed) or made != whole:
        raise NotUnderstood("GROUP BY ALL over more than columns and aggregates in SQL text")
    return [column for column, is_made in zip(columns, made, strict=True) if not is_made]
