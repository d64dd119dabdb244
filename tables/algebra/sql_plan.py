"""Reads SQL text of a table's function, whole queries and expressions, into the algebra; sqlglot parses it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from infra.sql.impure_functions import BARE
from tables.algebra.plan_builder import NotUnderstood, PlanBuilder, extracted, starred, struct_of, text, windowed
from tables.algebra.plan_mistakes import ELSEWHERE
from tables.algebra.relations import Aggregate, Call, Expr, Literal, Missing, Named, Relation, field_of, interval_of
from tables.algebra.spark_functions import TIME_WINDOWS

View = Callable[[], Relation]


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


_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div", exp.DPipe: "||",
    exp.EQ: "==", exp.NEQ: "!=", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.NullSafeEQ: "<=>",
    exp.And: "and", exp.Or: "or", exp.Not: "not", exp.Neg: "negative", exp.BitwiseAnd: "&", exp.BitwiseOr: "|",
    exp.BitwiseXor: "^", exp.BitwiseNot: "~", exp.Like: "like", exp.ILike: "ilike", exp.RegexpLike: "rlike",
    exp.Between: "between", exp.Transform: "transform", exp.Overlay: "overlay",
    exp.Substring: "substring", exp.StrPosition: "instr", exp.Extract: "extract",
}  # fmt: skip
"""Syntax that sqlglot reads as a node of its own, with the values under it as arguments."""
_TRIMS = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_JOINS = {"": "inner", "LEFT": "left_outer", "RIGHT": "right_outer", "FULL": "full_outer"}


class SqlReader:
    """Reads text.

    Args:
        views: name of a relation that the text may read -> what makes it, anew at each mention.
        variables: of lambda functions around it.
    """

    def __init__(self, builder: PlanBuilder, views: Mapping[str, View], variables: Collection[str] = ()) -> None:
        self._build, self._variables = builder, variables
        self._views = {name.lower(): view for name, view in views.items()}
        self._aliases: dict[str, Expr] = {}

    def query(self, written: str) -> Relation:
        """The rows of a query."""
        return self._query(_parsed(written))

    def value(self, written: str, below: Sequence[Relation], node: int) -> Expr:
        """The value of an expression."""
        return self._value(_parsed(written), below, node)

    def columns(self, written: str, below: Relation, node: int) -> list[Named]:
        """The columns that one expression of a projection makes."""
        return self._columns(_parsed(written), below, node)

    def _query(self, one: exp.Expr) -> Relation:
        _require_read(one)
        if isinstance(one, exp.Subquery):
            return self._aliased(self._tail(self._query(one.this), one), one)
        within = self._with(one)
        if isinstance(one, exp.SetOperation):
            kind = {"Union": "union", "Except": "except", "Intersect": "intersect"}[type(one).__name__]
            inputs = [within._query(side) for side in (one.left, one.right)]
            return within._tail(self._build.united(inputs, kind, by_name=bool(one.args.get("by_name"))), one)
        if not isinstance(one, exp.Select):
            raise NotUnderstood(f"SQL text that is no SELECT ({type(one).__name__})")
        return SqlReader(self._build, within._views)._select(one)

    def _with(self, one: exp.Expr) -> SqlReader:
        """A reader that knows the relations that WITH names, too."""
        clause = one.args.get("with_") or one.args.get("with")
        if clause is None:
            return self
        if clause.args.get("recursive"):
            raise NotUnderstood("a recursive query in SQL text")
        reader = self
        for cte in clause.expressions:
            columns = [column.name for column in cte.args["alias"].columns]
            view = _later(reader, cte.this, columns)
            reader = SqlReader(self._build, {**reader._views, cte.alias: view})
        return reader

    def renamed(self, query: exp.Expr, columns: Sequence[str]) -> Relation:
        """The rows of a query, its columns under these names where there are some."""
        rows = self._query(query)
        return self._named(rows, columns) if columns else rows

    def _select(self, one: exp.Select) -> Relation:
        clause = one.args.get("from_") or one.args.get("from")
        if clause is None:
            raise NotUnderstood("SQL text without FROM")
        rows = self._from(clause.this)
        for join in one.args.get("joins") or ():
            rows = self._join(rows, join)
        if where := one.args.get("where"):
            rows = self._build.filtered(rows, [self._value(where.this, [rows], self._build.node())])
        group, having, below, node = one.args.get("group"), one.args.get("having"), rows, self._build.node()
        columns: list[Named] = []
        for expression in one.expressions:  # each may name those before it
            columns += self._columns(expression, below, node)
            self._aliases = {column.name.lower(): column.value for column in columns if column.name}
        if group is not None or having is not None:
            by = [] if group is None else [self._by(e, columns, below, node) for e in group.expressions]
            is_plain = group is None or not any(group.args.get(kind) for kind in _MANY_GROUPINGS)
            rows = self._build.grouped(below, by, columns, is_plain=is_plain)
        else:
            rows = self._build.projected(below, columns)
        if having is not None:
            rows = self._build.filtered(rows, [self._value(having.this, [below], node)])
        if one.args.get("distinct"):
            rows = self._build.distinct(rows)
        return self._tail(rows, one)

    def _by(self, one: exp.Expr, columns: Sequence[Named], below: Relation, node: int) -> Named:
        """The expression of a term of GROUP BY or ORDER BY, which may be a place in the result."""
        if isinstance(one, exp.Literal) and not one.is_string and 0 < int(one.name) <= len(columns):
            return columns[int(one.name) - 1]
        value = self._value(one, [below], node)
        is_window = isinstance(value, Call) and value.function in TIME_WINDOWS
        return Named(value.function if isinstance(value, Call) and is_window else one.alias_or_name, value)

    def _tail(self, rows: Relation, one: exp.Expr) -> Relation:
        """The end of a query: alias, ORDER BY, LIMIT."""
        if order := one.args.get("order") or one.args.get("sort"):
            values = [self._by(term.this, rows.columns, rows, self._build.node()).value for term in order.expressions]
            rows = self._build.filtered(rows, values, is_sort=True)
        for what in ("limit", "offset"):
            if one.args.get(what):
                rows = self._build.limited(rows, what)
        return rows

    def _aliased(self, rows: Relation, one: exp.Expr) -> Relation:
        """A relation under its alias, the columns under those that it names."""
        alias = one.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.columns:
            rows = self._named(rows, [column.name for column in alias.columns])
        return self._build.aliased(rows, one.alias) if one.alias else rows

    def _named(self, rows: Relation, names: Sequence[str]) -> Relation:
        if not rows.is_counted or len(rows.columns) != len(names):
            raise NotUnderstood("names of columns in SQL text")
        columns = zip(names, rows.columns, strict=True)
        return self._build.projected(rows, [Named(name, column.value) for name, column in columns])

    def _from(self, one: exp.Expr) -> Relation:
        if isinstance(one, exp.Subquery):
            return self._query(one)
        if not isinstance(one, exp.Table):
            raise NotUnderstood(f"{type(one).__name__.upper()} after FROM in SQL text")
        _require_read(one)
        if not isinstance(one.this, exp.Identifier):
            raise NotUnderstood("a function after FROM in SQL text")
        name = ".".join(part.name for part in one.parts)
        view = self._views.get(name.lower())
        if view is None:
            return self._build.refused(ELSEWHERE.mistake(name=name))
        rows = self._aliased(self._build.aliased(view(), name), one)
        for join in one.args.get("joins") or ():
            rows = self._join(rows, join)
        return rows

    def _join(self, left: Relation, join: exp.Join) -> Relation:
        _require_read(join)
        right = self._from(join.this)
        kind, side = (join.kind or "").upper(), (join.side or "").upper()
        if join.method and join.method.upper() == "NATURAL":
            raise NotUnderstood("NATURAL JOIN in SQL text")
        how = {"SEMI": "left_semi", "ANTI": "left_anti", "CROSS": "cross"}.get(kind) or _JOINS.get(side)
        if how is None:
            raise NotUnderstood(f"{side} {kind} JOIN in SQL text")
        on = join.args.get("on")
        conditions = [] if on is None else [self._value(on, [left, right], self._build.node())]
        return self._build.joined(left, right, how, conditions, [one.name for one in join.args.get("using") or ()])

    def _columns(self, one: exp.Expr, below: Relation, node: int) -> list[Named]:
        if isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
            if isinstance(one, exp.Star) and (one.args.get("except_") or one.args.get("except")):
                raise NotUnderstood("* EXCEPT in SQL text")
            path = [part.name for part in one.parts[:-1]] if isinstance(one, exp.Column) else []
            return starred(path, below, self._build)
        if isinstance(one, exp.Aliases):
            raise NotUnderstood("several names of one expression in SQL text")
        value = self._value(one, [below], node)
        under = next((c.under for c in below.columns if c.value == value and c.name), "")
        return [Named(one.alias or (one.name if isinstance(one, exp.Column) else ""), value, under)]

    def _values(self, expressions: Iterable[exp.Expr], below: Sequence[Relation], node: int) -> list[Expr]:
        return [self._value(one, below, node) for one in expressions]

    def _value(self, one: exp.Expr, below: Sequence[Relation], node: int) -> Expr:
        match one:
            case exp.Alias() | exp.Paren():
                return self._value(one.this, below, node)
            case exp.Ordered():
                return self._value(one.this, below, node)
            case exp.Column() | exp.Identifier():
                return self._column(one, below)
            case exp.Lambda():
                within = SqlReader(
                    self._build, self._views, {*self._variables, *(v.name.lower() for v in one.expressions)}
                )
                return within._value(one.this, below, node)
            case exp.Dot():
                return field_of(self._value(one.this, below, node), one.expression.name)
            case exp.Bracket():
                return extracted(self._value(one.this, below, node), self._value(one.expressions[0], below, node))
            case exp.Literal():
                return text(one.name) if one.is_string else Literal(one.name, one.name)
            case exp.Boolean():
                return Literal(str(one.this), str(one.this).lower())
            case exp.Null():
                return Literal("NULL", "NULL")
            case exp.Interval():
                return _interval(one)
            case exp.Cast():
                to = one.args["to"].sql(dialect="spark")
                name = "try_cast" if one.args.get("safe") else "cast"
                return Call(name, (self._value(one.this, below, node), Literal(to, to)))
            case exp.Collate():
                return Call("collate", (self._value(one.this, below, node), text(one.expression.name)))
            case exp.Window():
                return self._windowed(one, below, node)
            case exp.Filter():
                return self._filtered(one, below, node)
            case exp.WithinGroup():
                return self._in_order(one, below, node)
            case exp.IgnoreNulls() | exp.RespectNulls():
                return self._value(one.this, below, node)
            case exp.Anonymous():
                return self._call(one.name, one.expressions, below, node)
            case exp.Trim():
                values = self._values([v for v in (one.args.get("expression"), one.this) if v], below, node)
                return self._build.call(_TRIMS[str(one.args.get("position") or "BOTH").upper()], values, node)
            case exp.Case():
                return self._case(one, below, node)
            case exp.In() if not one.args.get("query"):
                return Call("in", tuple(self._values([one.this, *one.expressions], below, node)))
            case exp.Is():
                if not isinstance(one.expression, exp.Null):
                    raise NotUnderstood("IS in SQL text")
                return Call("isnull", (self._value(one.this, below, node),))
            case exp.Subquery() | exp.Exists() | exp.In() | exp.Select():
                raise NotUnderstood("a subquery within an expression of SQL text")
        # `safe` says how the dialect divides and joins texts, not how this text does.
        if type(one) not in _OPERATORS or any(part is True for name, part in one.args.items() if name != "safe"):
            raise NotUnderstood(f"{type(one).__name__.upper()} in SQL text")
        inner = [value for value in one.args.values() for value in (value if isinstance(value, list) else [value])]
        values = [self._value(v, below, node) for v in inner if isinstance(v, exp.Expr) and not isinstance(
            v, exp.Var)]  # fmt: skip
        marks = [text(str(v)) for v in inner if isinstance(v, exp.Var | str)]
        return self._build.call(_OPERATORS[type(one)], [*marks, *values], node)

    def _filtered(self, one: exp.Filter, below: Sequence[Relation], node: int) -> Expr:
        made = self._value(one.this, below, node)
        condition = self._value(one.expression.this, below, node)
        if isinstance(made, Aggregate):
            return replace(made, arguments=(*made.arguments, Call("filter", (condition,))))
        raise NotUnderstood("FILTER in SQL text")

    def _in_order(self, one: exp.WithinGroup, below: Sequence[Relation], node: int) -> Expr:
        made, by = self._value(one.this, below, node), tuple(self._values(one.expression.expressions, below, node))
        if isinstance(made, Aggregate):
            # Values that are equal in the order are equal themselves if the order is theirs.
            is_own = made.arguments[:1] == by[:1] or not made.arguments
            return replace(made, arguments=(*made.arguments, *by), is_ordered=is_own)
        raise NotUnderstood("WITHIN GROUP in SQL text")

    def _case(self, one: exp.Case, below: Sequence[Relation], node: int) -> Expr:
        branches = [part for branch in one.args["ifs"] for part in (branch.this, branch.args["true"])]
        outer = [one.this, one.args.get("default")]
        values = self._values([part for part in (*branches, *outer) if part is not None], below, node)
        return Call("case", (Literal(f"{len(branches)} {one.this is not None}", ""), *values))

    def _call(self, name: str, written: Sequence[exp.Expr], below: Sequence[Relation], node: int) -> Expr:
        if name.lower() == "count" and len(written) == 1 and isinstance(written[0], exp.Star):
            return Aggregate(node, "count", ())
        if name.lower() == "struct":
            return struct_of(
                (one.alias_or_name or f"col{n}", self._value(one, below, node)) for n, one in enumerate(written, 1)
            )
        if len(written) == 1 and isinstance(written[0], exp.Distinct):
            values = self._values(written[0].expressions, below, node)
            return self._build.call(name, values, node, is_distinct=True)
        return self._build.call(name, self._values(written, below, node), node)

    def _windowed(self, one: exp.Window, below: Sequence[Relation], node: int) -> Expr:
        if one.args.get("alias"):
            raise NotUnderstood("a named window in SQL text")
        partition = tuple(self._values(one.args.get("partition_by") or (), below, node))
        order = one.args.get("order")
        by = tuple(self._values(order.expressions, below, node)) if order is not None else ()
        spec = one.args.get("spec")
        is_whole = spec is not None and [spec.args.get(end) for end in ("start", "end")] == ["UNBOUNDED"] * 2
        is_by_rows = spec is not None and str(spec.args.get("kind", "")).upper() == "ROWS" and not is_whole
        return windowed(self._value(one.this, below, node), node, partition, by, is_by_rows=is_by_rows)

    def _column(self, one: exp.Expr, below: Sequence[Relation]) -> Expr:
        path = [part.name for part in one.parts] if isinstance(one, exp.Column) else [one.name]
        if path[0].lower() in self._variables:
            return Literal(f"the variable {'.'.join(path)}", "")
        column = self._build.column(path, below)
        if not isinstance(column, Missing) or len(path) > 1:
            return column
        name = path[0].lower()
        return self._aliases.get(name, Call(name) if name in BARE else column)


_MANY_GROUPINGS = ("rollup", "cube", "grouping_sets", "all", "totals")
_TAIL = {"with_", "with", "order", "sort", "limit", "offset"}
_READ: dict[type[exp.Expr], set[str]] = {
    exp.Select: {*_TAIL, "from_", "from", "joins", "where", "group", "having", "distinct", "expressions", "hint"},
    exp.SetOperation: {*_TAIL, "this", "expression", "distinct", "by_name"},
    exp.Subquery: {*_TAIL, "this", "alias"},
    exp.Table: {"this", "db", "catalog", "alias", "joins"},
    exp.Join: {"this", "side", "kind", "method", "on", "using", "hint"},
}
"""The parts of what makes rows that are read."""


def _require_read(one: exp.Expr) -> None:
    """Refuse rows of whose text a part is not read, which would be taken for those of the rest."""
    for kind, read in _READ.items():
        if isinstance(one, kind) and (unread := sorted({name for name, part in one.args.items() if part} - read)):
            raise NotUnderstood(f"{unread[0].strip('_').upper()} in SQL text")


def _later(reader: SqlReader, query: exp.Expr, columns: Sequence[str]) -> View:
    return lambda: reader.renamed(query, columns)


def _interval(one: exp.Interval) -> Expr:
    if one.this is None or one.unit is None or not one.this.is_string or not one.this.name.strip().isdigit():
        raise NotUnderstood("an INTERVAL in SQL text")
    return interval_of(one.this.name.strip(), one.unit.name)


def _parsed(written: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(written, read=_Dialect)
    except sqlglot.errors.SqlglotError as error:
        raise NotUnderstood(f"SQL text that cannot be parsed ({str(error).splitlines()[0][:60]})") from error
