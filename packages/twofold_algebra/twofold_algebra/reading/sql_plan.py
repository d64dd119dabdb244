"""Parses SQL of a table's function, whole queries and expressions, into the algebra, with sqlglot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from twofold_algebra.plan_mistakes import ELSEWHERE
from twofold_algebra.reading.plan_builder import (
    NotUnderstood,
    PlanBuilder,
    extracted,
    interval_of,
    starred,
    struct_of,
    text,
    window_name,
    windowed,
)
from twofold_algebra.reading.sql_pivots import pivoted
from twofold_algebra.reading.sql_syntax import (
    JOINS,
    OPERATORS,
    TRIMS,
    all_of_rows,
    groupings,
    parsed,
    require_read,
)
from twofold_algebra.relations import (
    Aggregate,
    Call,
    Column,
    Expr,
    Limit,
    Literal,
    Merged,
    Missing,
    Named,
    Opaque,
    Relation,
    field_at,
    field_of,
    parts,
    relations,
)
from twofold_algebra.spark_functions import TIME_WINDOWS
from twofold_algebra.sql.impure_functions import BARE

View = Callable[[], Relation]


class SqlReader:
    """Reads text.

    Args:
        views: name of a relation that the text may read -> what makes it, anew at each mention.
        variables: of lambda functions around it.
        aliases: names of columns before the one that is read, in small letters.
        outer: the relations of the queries that this one is a subquery of, the nearest first.
    """

    def __init__(
        self,
        builder: PlanBuilder,
        views: Mapping[str, View],
        variables: Collection[str] = (),
        aliases: Mapping[str, Expr] | None = None,
        outer: Sequence[Sequence[Relation]] = (),
    ) -> None:
        self._build, self._variables, self._outer = builder, variables, outer
        self._views = {name.lower(): view for name, view in views.items()}
        self._aliases = {**(aliases or {})}
        self._queries: list[Relation] = []
        """Those of subqueries within the expressions that were read last."""

    def query(self, written: str) -> Relation:
        """Parses a query."""
        return self._query(parsed(written))

    def value(self, written: str, below: Sequence[Relation], node: int) -> Expr:
        """Parses an expression."""
        value = self._value(parsed(written), below, node)
        self._require_no_query()
        return value

    def columns(self, written: str, below: Relation, node: int) -> list[Named]:
        """Parses one expression of a projection to its columns."""
        columns = self._columns(parsed(written), below, node)
        self._require_no_query()
        return columns

    def _require_no_query(self) -> None:
        """Refuses subqueries within expressions that no relation holds."""
        if self._queries:
            raise NotUnderstood("a subquery within an expression of SQL text")

    def _found(self, below: Relation) -> Relation:
        """Returns the rows with the values that the subqueries find which were read since."""
        rows = self._build.looked_up(below, self._queries)
        self._queries.clear()
        return rows

    def _query(self, one: exp.Expr) -> Relation:
        require_read(one)
        if isinstance(one, exp.Subquery):
            return self._aliased(self._tail(self._query(one.this), one), one)
        within = self._with(one)
        if isinstance(one, exp.SetOperation):
            kind = {"Union": "union", "Except": "except", "Intersect": "intersect"}[type(one).__name__]
            inputs = [within._query(side) for side in (one.left, one.right)]
            rows = self._build.united(inputs, kind, by_name=bool(one.args.get("by_name")))
            return within._tail(self._build.distinct(rows) if one.args.get("distinct") else rows, one)
        if not isinstance(one, exp.Select):
            raise NotUnderstood(f"SQL text that is no SELECT ({type(one).__name__})")
        return SqlReader(self._build, within._views, outer=self._outer)._select(one)

    def _with(self, one: exp.Expr) -> SqlReader:
        """Returns a reader that also knows the relations that WITH names."""
        clause = one.args.get("with_") or one.args.get("with")
        if clause is None:
            return self
        if clause.args.get("recursive"):
            raise NotUnderstood("a recursive query in SQL text")
        reader = self
        for cte in clause.expressions:
            columns = [column.name for column in cte.args["alias"].columns]
            view = _later(reader, cte.this, columns)
            reader = SqlReader(self._build, {**reader._views, cte.alias: view}, outer=self._outer)
        return reader

    def renamed(self, query: exp.Expr, columns: Sequence[str]) -> Relation:
        """Builds the rows of a query, with its columns renamed if names are given."""
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
            conditions = self._conditions(where.this, rows)
            rows = self._build.filtered(self._found(rows), conditions)
        group, having, below, node = one.args.get("group"), one.args.get("having"), rows, self._build.node()
        if group is not None:
            require_read(group)
        terms, sets = ([], []) if group is None else groupings(group)
        windows = {value.function: value for term in terms if isinstance(term, exp.Anonymous) and term.name.lower() in
                   TIME_WINDOWS and isinstance(value := self._value(term, [below], node), Call)}  # fmt: skip
        columns: list[Named] = []
        for expression in one.expressions:  # each may name those before it
            self._aliases = {**windows, **{column.name.lower(): column.value for column in columns if column.name}}
            columns += self._columns(expression, below, node)
        self._aliases = {column.name.lower(): column.value for column in columns if column.name}
        kept = [Named("", self._value(qualify.this, [below], node)) for qualify in [one.args.get("qualify")] if qualify]
        if group is not None or having is not None:
            by = [self._by(term, columns, below, node) for term in terms]
            if group is not None and group.args.get("all"):
                by = all_of_rows(columns)
            rows = self._build.grouped(self._found(below), by, [*columns, *kept], sets)
        else:
            rows = self._build.projected(self._found(below), [*columns, *kept])
        if having is not None:
            condition = self._value(having.this, [below], node)
            rows = self._build.filtered(self._found(rows), [condition])
        if kept:
            rows = self._build.projected(self._build.filtered(rows, [kept[0].value]), rows.columns[:-1])
        if one.args.get("distinct"):
            rows = self._build.distinct(rows)
        return self._tail(rows, one)

    def _conditions(self, one: exp.Expr, rows: Relation) -> list[Expr]:
        """Returns the conditions of WHERE; that a subquery has a row (`x IN (SELECT ...)`) as what it finds for it."""
        found = []
        for part in one.flatten() if isinstance(one, exp.And) else [one]:
            node, condition = self._build.node(), part.unnest()
            if isinstance(condition, exp.And):
                found += self._conditions(condition, rows)
            elif isinstance(condition, exp.In) and condition.args.get("query"):
                found.append(self._member(condition, [rows], node, is_required=True))
            else:
                found.append(self._value(condition, [rows], node))
        return found

    def _member(self, one: exp.In, below: Sequence[Relation], node: int, *, is_required: bool) -> Expr:
        """Whether the rows of a subquery have a value.

        Args:
            is_required: only rows for which it is true matter. It is then true of the rows of the subquery that are
                equal; else null values of others matter, too.
        """
        values = self._values(one.this.expressions if isinstance(one.this, exp.Tuple) else [one.this], below, node)
        rows = self._subquery(one.args["query"], below)
        if is_required and rows.is_counted and len(rows.columns) == len(values):
            equal = [Call("==", (c.value, value)) for c, value in zip(rows.columns, values, strict=True)]
            rows = self._build.filtered(rows, equal)
        return self._looked_up(rows, values)

    def _subquery(self, one: exp.Expr, below: Sequence[Relation]) -> Relation:
        return SqlReader(self._build, self._views, outer=(below, *self._outer))._query(one)

    def _looked_up(self, rows: Relation, values: Iterable[Expr] = ()) -> Expr:
        """Returns the value that a subquery finds, known only by where it is from."""
        self._queries.append(rows)
        made_of = [part for value in values for part in parts(value) if isinstance(part, Column | Merged)]
        return Opaque(self._build.node(), "a subquery within an expression", tuple(dict.fromkeys(made_of)))

    def _by(self, one: exp.Expr, columns: Sequence[Named], below: Relation, node: int) -> Named:
        """Resolves a term of GROUP BY or ORDER BY, which may be a position in the result."""
        if isinstance(one, exp.Literal) and not one.is_string and 0 < int(one.name) <= len(columns):
            return columns[int(one.name) - 1]
        value = self._value(one, [below], node)
        return Named(window_name(value) or one.alias_or_name, value)

    def _tail(self, rows: Relation, one: exp.Expr) -> Relation:
        """Applies the end of a query: alias, ORDER BY, LIMIT."""
        if order := one.args.get("order") or one.args.get("sort"):
            values = [self._by(term.this, rows.columns, rows, self._build.node()).value for term in order.expressions]
            rows = self._build.filtered(rows, values, is_sort=True)
        self._require_no_query()
        for what in ("offset", "limit"):
            if clause := one.args.get(what):
                most = clause.args.get("expression")
                is_number = isinstance(most, exp.Literal) and not most.is_string and most.name.isdecimal()
                rows = self._build.limited(rows, what, int(most.name) if what == "limit" and is_number else None)
        return rows

    def _aliased(self, rows: Relation, one: exp.Expr) -> Relation:
        """Applies an alias to a relation, and its names to the columns."""
        alias = one.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.columns:
            rows = self._named(rows, [column.name for column in alias.columns])
        rows = self._build.aliased(rows, one.alias) if one.alias else rows
        for pivot in one.args.get("pivots") or ():
            rows = self._aliased(pivoted(rows, pivot, self._value, self._build), pivot)
        return rows

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
        require_read(one)
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
        require_read(join)
        right = self._from(join.this)
        kind, side = (join.kind or "").upper(), (join.side or "").upper()
        if join.method and join.method.upper() == "NATURAL":
            raise NotUnderstood("NATURAL JOIN in SQL text")
        how = {"SEMI": "left_semi", "ANTI": "left_anti", "CROSS": "cross"}.get(kind) or JOINS.get(side)
        if how is None:
            raise NotUnderstood(f"{side} {kind} JOIN in SQL text")
        on = join.args.get("on")
        conditions = [] if on is None else [self._value(on, [left, right], self._build.node())]
        self._require_no_query()
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
        return [Named(one.alias or (one.name if isinstance(one, exp.Column) else window_name(value)), value, under)]

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
            case exp.RespectNulls():
                return self._value(one.this, below, node)
            case exp.IgnoreNulls(this=exp.Anonymous() as function):
                return self._call(function.name, [*function.expressions, exp.true()], below, node)
            case exp.Anonymous(expressions=[exp.IgnoreNulls() as first, *rest]):
                return self._call(one.name, [first.this, *rest, exp.true()], below, node)
            case exp.Anonymous():
                return self._call(one.name, one.expressions, below, node)
            case exp.Trim():
                values = self._values([v for v in (one.args.get("expression"), one.this) if v], below, node)
                return self._build.call(TRIMS[str(one.args.get("position") or "BOTH").upper()], values, node)
            case exp.Case():
                return self._case(one, below, node)
            case exp.In() if not one.args.get("query"):
                return Call("in", tuple(self._values([one.this, *one.expressions], below, node)))
            case exp.Is():
                if not isinstance(one.expression, exp.Null):
                    raise NotUnderstood("IS in SQL text")
                return Call("isnull", (self._value(one.this, below, node),))
            case exp.In() | exp.Exists() | exp.Subquery() | exp.Select():
                return self._of_query(one, below, node)
        return self._of_operator(one, below, node)

    def _of_query(self, one: exp.Expr, below: Sequence[Relation], node: int) -> Expr:
        if isinstance(one, exp.In):
            return self._member(one, below, node, is_required=False)
        rows = self._subquery(one.this if isinstance(one, exp.Exists) else one, below)
        if not isinstance(one, exp.Exists):
            return self._looked_up(rows, [column.value for column in rows.columns])
        return self._looked_up(rows.input if isinstance(rows, Limit) and rows.rows else rows)

    def _of_operator(self, one: exp.Expr, below: Sequence[Relation], node: int) -> Expr:
        if type(one) not in OPERATORS or any(
            mark is True for name, mark in one.args.items() if name not in _OF_DIALECT
        ):
            raise NotUnderstood(f"{type(one).__name__.upper()} in SQL text")
        inner = [value for value in one.args.values() for value in (value if isinstance(value, list) else [value])]
        values = [self._value(v, below, node) for v in inner if isinstance(v, exp.Expr) and not isinstance(
            v, exp.Var)]  # fmt: skip
        marks = [text(str(v)) for v in inner if isinstance(v, exp.Var | str)]
        return self._build.call(OPERATORS[type(one)], [*marks, *values], node)

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
        column, name = self._build.column(path, below), path[0].lower()
        if self._outer and any(one.is_open for one in below):
            raise NotUnderstood("a subquery over columns that are not known")
        held = (c for root in below for one in relations(root) for c in one.columns)
        is_inner = not self._outer or len(path) == 1 or any(name in (c.name.lower(), c.under.lower()) for c in held)
        if is_inner and not isinstance(column, Missing):
            return column
        of_outer = (self._build.column(path, rows) for rows in self._outer)
        found = [one for one in of_outer if not isinstance(one, Missing)][:1]
        if name in self._aliases:
            found.append(field_at(self._aliases[name], path[1:]))
        if len(found) > 1:
            raise NotUnderstood(f"a name that a column and an outer query have ({'.'.join(path)})")
        return found[0] if found else Call(name) if name in BARE and len(path) == 1 else column


_OF_DIALECT = {"safe", "typed"}
"""Marks of a dialect, not of what is written: whether `/` is safe, and goes by types."""


def _later(reader: SqlReader, query: exp.Expr, columns: Sequence[str]) -> View:
    return lambda: reader.renamed(query, columns)


def _interval(one: exp.Interval) -> Expr:
    if one.this is None or one.unit is None or not one.this.is_string or not one.this.name.strip().isdigit():
        raise NotUnderstood("an INTERVAL in SQL text")
    return interval_of(one.this.name.strip(), one.unit.name)
