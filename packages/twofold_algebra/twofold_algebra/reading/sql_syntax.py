"""Syntax of SQL text: its dialect, the parts of it that are read, the sets of columns that GROUP BY goes by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from twofold_algebra.expression_sql import OF_UNITS
from twofold_algebra.reading.plan_builder import NotUnderstood, cube_sets, rollup_sets
from twofold_algebra.relations import Aggregate, Generated, Named, Rest, Windowed, parts

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


OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div", exp.DPipe: "||",
    exp.EQ: "==", exp.NEQ: "!=", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.NullSafeEQ: "<=>",
    exp.And: "and", exp.Or: "or", exp.Not: "not", exp.Neg: "negative", exp.BitwiseAnd: "&", exp.BitwiseOr: "|",
    exp.BitwiseXor: "^", exp.BitwiseNot: "~", exp.Like: "like", exp.ILike: "ilike", exp.RegexpLike: "rlike",
    exp.Between: "between", exp.Transform: "transform", exp.Overlay: "overlay",
    exp.Substring: "substring", exp.StrPosition: "instr", exp.Extract: "extract",
}  # fmt: skip
"""Syntax that sqlglot reads as a node of its own, with the values under it as arguments."""
TRIMS = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
JOINS = {"": "inner", "LEFT": "left_outer", "RIGHT": "right_outer", "FULL": "full_outer"}
_TAIL = {"with_", "with", "order", "sort", "limit", "offset"}
_READ: dict[type[exp.Expr], set[str]] = {
    exp.Select: {
        *_TAIL,
        "from_",
        "from",
        "joins",
        "where",
        "group",
        "having",
        "distinct",
        "expressions",
        "hint",
        "windows",
        "qualify",
    },
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
    """Parses a text, with what is short for other syntax written out.

    Raises:
        NotUnderstood: it cannot be parsed.
    """
    try:
        root = sqlglot.parse_one(written, read=_Dialect)
    except sqlglot.errors.SqlglotError as error:
        raise NotUnderstood(f"SQL text that cannot be parsed ({str(error).splitlines()[0][:60]})") from error
    for select in root.find_all(exp.Select):
        _write_windows_out(select)
    for one in reversed(
        [*root.find_all(exp.Anonymous, exp.If, exp.Is, exp.NullSafeNEQ, exp.Like, exp.ILike)]
    ):  # inner ones first
        whole = _written_out(one)
        root = whole if one is root else root
        one.replace(whole)
    return root


def _written_out(one: exp.Expr) -> exp.Expr:
    match one:
        case exp.Anonymous(expressions=[exp.Column() as unit, _, _]) if one.name.lower() in OF_UNITS:
            return exp.Anonymous(this=one.this, expressions=[exp.Literal.string(unit.name), *one.expressions[1:]])
        case exp.If() if not isinstance(one.parent, exp.Case):
            branch = exp.If(this=one.this, true=one.args["true"])
            return exp.Case(ifs=[branch], default=one.args.get("false"))
        case exp.Is(expression=exp.Boolean()):
            return exp.NullSafeEQ(this=one.this, expression=one.expression)
        case exp.NullSafeNEQ():
            return exp.Not(this=exp.NullSafeEQ(this=one.this, expression=one.expression))
        case exp.Like(expression=several) | exp.ILike(expression=several):
            patterns = [several]
            if isinstance(several, exp.Any | exp.All):
                patterns = several.this.expressions or [several.this.unnest()]
            each: list[exp.Expr] = [type(one)(this=one.this.copy(), expression=pattern) for pattern in patterns]
            either = exp.Or if isinstance(several, exp.Any) else exp.And
            each = [exp.Not(this=like) for like in each] if one.args.get("negate") else each
            return reduce(lambda left, right: either(this=left, expression=right), each)
    return one


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


def _write_windows_out(one: exp.Select) -> None:
    """Writes what WINDOW names where the names are."""
    named = {window.name.lower(): window for window in one.args.get("windows") or ()}
    for window in [*named.values(), *one.find_all(exp.Window)] if named else ():
        if window.alias and window.parent_select is one and (known := named.get(window.alias.lower())):
            for part in ("partition_by", "order", "spec"):
                if not window.args.get(part):
                    window.set(part, known.copy().args.get(part))
            window.set("alias", None)
