"""Reads what a table's function does to its inputs from the plan that Spark Connect's client writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, partialmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from twofold_algebra.expression_sql import PLAIN_TYPES
from twofold_algebra.plan_mistakes import ELSEWHERE, PIVOT
from twofold_algebra.reading.function_plan import plan_of
from twofold_algebra.reading.known_schema import schema_of
from twofold_algebra.reading.pivots import pivot, unpivot
from twofold_algebra.reading.plan_builder import (
    NotUnderstood,
    PlanBuilder,
    cube_sets,
    extracted,
    rollup_sets,
    starred,
    struct_of,
    text,
    window_name,
    windowed,
)
from twofold_algebra.reading.unread_parts import open_parts
from twofold_algebra.relations import (
    Aggregate,
    Call,
    Expr,
    Generated,
    Literal,
    Missing,
    Named,
    Opaque,
    Relation,
    Rest,
    field_at,
)
from twofold_algebra.sql.names import SPARK

if TYPE_CHECKING:
    from twofold_algebra.reading.sql_plan import SqlReader


def read_function(
    function: Callable[..., Any],
    inputs: Mapping[str, Sequence[str] | None],
    kinds: Mapping[str, Mapping[str, str]] | None = None,
) -> Relation:
    """Returns the relation that a table's function makes.

    Args:
        inputs: parameter of the function -> the columns of that input; None: not known.
        kinds: the same -> column -> its type, where that is known.

    Raises:
        Unreadable: the plan cannot be had without data, and why.
    """

    def read(plan: Any) -> Relation:
        return _Reader(PlanBuilder(inputs, kinds)).relation(plan)

    return read(plan_of(function, inputs, lambda plan: schema_of(read(plan))))


class _Reader:
    """Reads relations of the client's plan; of a kind that it does not know it says so."""

    def __init__(self, builder: PlanBuilder) -> None:
        self._build = builder
        self._aliases: dict[str, Expr] = {}
        """The columns before the one that is read, which it may name."""

    def relation(self, message: Any) -> Relation:
        """Reads a relation; one of an unknown kind becomes `Unknown`."""
        kind = message.WhichOneof("rel_type")
        content = getattr(message, kind)
        reader: Callable[[Any], Relation] | None = getattr(self, f"_{kind}", None)
        try:
            read = reader(content) if reader else self._unread(kind, content, f"`{kind}`")
        except NotUnderstood as error:
            read = self._unread(kind, content, str(error))
        plan_id = message.common.plan_id if message.common.HasField("plan_id") else None
        return replace(read, plan_id=plan_id)

    def _unread(self, kind: str, one: Any, why: str) -> Relation:
        fields = {field.name for field, _ in one.ListFields()}
        names = ("input", "left_input", "right_input", "left", "right")
        below = [getattr(one, name) for name in names if name in fields]
        if kind == "with_relations":
            below += [*one.references, *([one.root] if one.root.WhichOneof("rel_type") != "sql" else [])]
        return self._build.unknown(map(self.relation, below), why, open_parts(kind, one))

    def _read(self, one: Any) -> Relation:
        if one.WhichOneof("read_type") != "named_table":
            return self._build.refused(ELSEWHERE.mistake(name=", ".join(one.data_source.paths)))
        return self._build.source(one.named_table.unparsed_identifier)

    def _same(self, one: Any) -> Relation:
        return self.relation(one.input)

    _hint = _repartition = _repartition_by_expression = _collect_metrics = _same

    def _filter(self, one: Any) -> Relation:
        below = self.relation(one.input)
        return self._build.filtered(below, [self._value(one.condition, [below], self._build.node())])

    def _sort(self, one: Any) -> Relation:
        below = self.relation(one.input)
        if not one.is_global:
            return below
        by = [self._value(order.child, [below], self._build.node()) for order in one.order]
        return self._build.filtered(below, by, is_sort=True)

    def _some(self, what: str, one: Any) -> Relation:
        return self._build.limited(self.relation(one.input), what, one.limit if what == "limit" else None)

    _limit, _offset = partialmethod(_some, "limit"), partialmethod(_some, "offset")
    _tail, _sample = partialmethod(_some, "tail"), partialmethod(_some, "sample")

    def _subquery_alias(self, one: Any) -> Relation:
        return self._build.aliased(self.relation(one.input), one.alias)

    def _project(self, one: Any) -> Relation:
        if not one.HasField("input"):
            raise NotUnderstood("rows that are made of nothing")
        below, node = self.relation(one.input), self._build.node()
        return self._build.projected(below, self._each_of(one.expressions, below, node))

    def _each_of(self, expressions: Iterable[Any], below: Relation, node: int) -> list[Named]:
        """Returns the columns of a projection, of which each may name those before it."""
        columns: list[Named] = []
        try:
            for expression in expressions:
                self._aliases = {column.name.lower(): column.value for column in columns if column.name}
                columns += self._columns(expression, below, node)
        finally:
            self._aliases = {}
        return columns

    def _with_columns(self, one: Any) -> Relation:
        below, node = self.relation(one.input), self._build.node()
        new = [Named(alias.name[0], self._value(alias.expr, [below], node)) for alias in one.aliases]
        return self._build.with_columns(below, new)

    def _with_columns_renamed(self, one: Any) -> Relation:
        renames = [(rename.col_name, rename.new_col_name) for rename in one.renames]
        return self._build.renamed(self.relation(one.input), renames or dict(one.rename_columns_map).items())

    def _to_df(self, one: Any) -> Relation:
        below = self.relation(one.input)
        if not below.is_counted or len(below.columns) != len(one.column_names):
            return self._build.projected(
                below, [Named(name, Opaque(self._build.node(), "a column by its place")) for name in one.column_names]
            )
        columns = zip(one.column_names, below.columns, strict=True)
        return self._build.projected(below, [Named(name, column.value) for name, column in columns])

    def _drop(self, one: Any) -> Relation:
        below = self.relation(one.input)
        named = [c for c in one.columns if not c.unresolved_attribute.HasField("plan_id")]
        values = [self._value(c, [below], self._build.node()) for c in one.columns if c not in named]
        names = [*one.column_names, *(c.unresolved_attribute.unparsed_identifier.strip("`") for c in named)]
        return self._build.without(below, names, values)

    def _fill_na(self, one: Any) -> Relation:
        """Reads a `fillna`: no expression states that it skips columns of other types and fills NaN, too."""
        return self._changed(one, "fillna")

    def _drop_na(self, one: Any) -> Relation:
        return self.relation(one.input)

    def _replace(self, one: Any) -> Relation:
        return self._changed(one, "replace")

    def _changed(self, one: Any, why: str) -> Relation:
        """Builds the rows with these columns, all if none is named, changed value by value."""
        below, node = self.relation(one.input), self._build.node()
        names = list(one.cols) or below.names
        changed = [Named(n, Opaque(node, why, (self._build.column([n], [below]),))) for n in names]
        return self._build.with_columns(below, changed)

    def _deduplicate(self, one: Any) -> Relation:
        return self._build.distinct(self.relation(one.input), list(one.column_names) or None)

    def _aggregate(self, one: Any) -> Relation:
        if one.HasField("pivot") and not one.pivot.values:
            return self._build.refused(PIVOT.mistake(function="pivot() without its values"))
        below, node = self.relation(one.input), self._build.node()
        by = [self._group(expression, below, node) for expression in one.grouping_expressions]
        columns = self._each_of(one.aggregate_expressions, below, node)
        if one.HasField("pivot"):
            cells = [("", self._of_literal(value, [below], node)) for value in one.pivot.values]
            return pivot(below, by, self._value(one.pivot.col, [below], node), cells, columns, self._build)
        return self._build.grouped(below, by, [*by, *columns], self._sets(one, by, below, node))

    def _columns_of_rows(self, function: str, _: Any) -> Relation:
        return self._build.refused(PIVOT.mistake(function=f"{function}()"))

    _transpose, _crosstab = partialmethod(_columns_of_rows, "transpose"), partialmethod(_columns_of_rows, "crosstab")

    def _sets(self, one: Any, by: Sequence[Named], below: Relation, node: int) -> list[frozenset[int]]:
        """Returns the places in `by` that each grouping goes by; none: there is one, by all."""
        kinds, each, values = type(one), [frozenset({n}) for n in range(len(by))], [one.value for one in by]
        sets = [self._values(found.grouping_set, [below], node) for found in one.grouping_sets]
        return {
            kinds.GROUP_TYPE_ROLLUP: rollup_sets(each),
            kinds.GROUP_TYPE_CUBE: cube_sets(each),
            kinds.GROUP_TYPE_GROUPING_SETS: [frozenset(values.index(value) for value in found) for found in sets],
        }.get(one.group_type, [])

    def _unpivot(self, one: Any) -> Relation:
        below, node = self.relation(one.input), self._build.node()
        kept = [column for each in one.ids for column in self._columns(each, below, node)]
        gone = {column.name.lower() for column in kept}
        rest = [column for column in below.columns if column.name.lower() not in gone]
        if one.HasField("values"):
            rest = [column for each in one.values.values for column in self._columns(each, below, node)]
        if not all(column.name for column in [*kept, *rest]):
            raise NotUnderstood("`unpivot` of columns that are not known")
        return unpivot(below, kept, rest, (one.variable_column_name, one.value_column_name), self._build)

    def _group(self, expression: Any, below: Relation, node: int) -> Named:
        named = self._columns(expression, below, node)
        if len(named) != 1 or isinstance(named[0].value, Rest):
            raise NotUnderstood("a group by several columns at once")
        value = named[0].value
        return named[0] if named[0].name else Named(window_name(value), value)

    def _join(self, one: Any) -> Relation:
        left, right = self.relation(one.left), self.relation(one.right)
        how = type(one).JoinType.Name(one.join_type).removeprefix("JOIN_TYPE_").lower()
        node = self._build.node()
        conditions = [self._value(one.join_condition, [left, right], node)] if one.HasField("join_condition") else []
        return self._build.joined(left, right, how, conditions, list(one.using_columns))

    def _set_op(self, one: Any) -> Relation:
        kind = type(one).SetOpType.Name(one.set_op_type).removeprefix("SET_OP_TYPE_").lower()
        inputs = [self.relation(one.left_input), self.relation(one.right_input)]
        return self._build.united(inputs, kind, by_name=one.by_name, fills=one.allow_missing_columns)

    def _with_relations(self, one: Any) -> Relation:
        if one.root.WhichOneof("rel_type") != "sql":
            raise NotUnderstood("a subquery")
        views = {reference.subquery_alias.alias: reference.subquery_alias.input for reference in one.references}
        return self._of_text(one.root.sql.query, views)

    def _sql(self, one: Any) -> Relation:
        return self._of_text(one.query, {})

    def _of_text(self, query: str, views: Mapping[str, Any]) -> Relation:
        return self._text(views).query(query)

    def _text(self, views: Mapping[str, Any] = MappingProxyType({})) -> SqlReader:
        """Returns a reader of SQL text that may name the columns before it."""
        from twofold_algebra.reading.sql_plan import SqlReader

        made = {name: partial(self.relation, view) for name, view in views.items()}
        return SqlReader(self._build, made, aliases=self._aliases)

    def _columns(self, expression: Any, below: Relation, node: int) -> list[Named]:
        """Builds the columns of an expression of a projection."""
        kind = expression.WhichOneof("expr_type")
        if kind == "unresolved_star":
            target = expression.unresolved_star.unparsed_target.removesuffix(".*")
            return starred(SPARK.path(target), below, self._build)
        if kind == "alias":
            value = self._value(expression.alias.expr, [below], node)
            return [Named(name, value) for name in expression.alias.name] if len(expression.alias.name) == 1 else [
                Named(name, Generated(node, f"{name}", (value,))) for name in expression.alias.name
            ]  # fmt: skip
        if kind == "unresolved_attribute":
            path = SPARK.path(expression.unresolved_attribute.unparsed_identifier)
            value = self._value(expression, [below], node)
            under = next((c.under for c in below.columns if c.value == value and c.name), "")
            return [Named(path[-1], value, under)]
        if kind == "expression_string":
            return self._text().columns(expression.expression_string.expression, below, node)
        value = self._value(expression, [below], node)
        return [Named(window_name(value), value)]

    def _value(self, expression: Any, below: Sequence[Relation], node: int) -> Expr:
        kind = expression.WhichOneof("expr_type")
        one = getattr(expression, kind)
        reader: Callable[[Any, Sequence[Relation], int], Expr] | None = getattr(self, f"_of_{kind}", None)
        if reader is None:
            raise NotUnderstood(f"the expression `{kind}`")
        return reader(one, below, node)

    def _values(self, expressions: Iterable[Any], below: Sequence[Relation], node: int) -> list[Expr]:
        return [self._value(one, below, node) for one in expressions]

    def _of_literal(self, one: Any, _: Sequence[Relation], __: int) -> Expr:
        kind = one.WhichOneof("literal_type")
        value = getattr(one, kind)
        if kind == "string":
            return text(value)
        if kind in ("byte", "short", "integer"):
            return Literal(str(value), str(value))
        if kind == "long":
            return Literal(str(value), f"{value}L")
        if kind == "boolean":
            return Literal(str(value), str(value).lower())
        if kind == "null":
            return Literal("NULL", "NULL")
        return Literal(f"{kind} {value}", "")

    def _of_alias(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        return self._value(one.expr, below, node)

    def _of_unresolved_attribute(self, one: Any, below: Sequence[Relation], _: int) -> Expr:
        plan_id = one.plan_id if one.HasField("plan_id") else None
        path = SPARK.path(one.unparsed_identifier)
        column = self._build.column(path, below, plan_id)
        if isinstance(column, Missing) and plan_id is None and path[0].lower() in self._aliases:
            return field_at(self._aliases[path[0].lower()], path[1:])
        return column

    def _of_expression_string(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        return self._text().value(one.expression, below, node)

    def _of_unresolved_function(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        name = one.function_name.lower()
        if name == "struct":
            return struct_of((self._member(n, argument), self._value(argument, below, node)) for n, argument in
                             enumerate(one.arguments, 1))  # fmt: skip
        if name == "count" and any(a.WhichOneof("expr_type") == "unresolved_star" for a in one.arguments):
            return Aggregate(node, "count", (), is_distinct=one.is_distinct)
        return self._build.call(name, self._values(one.arguments, below, node), node, is_distinct=one.is_distinct)

    def _member(self, number: int, expression: Any) -> str:
        kind = expression.WhichOneof("expr_type")
        if kind == "alias":
            return str(expression.alias.name[0])
        if kind == "unresolved_attribute":
            return SPARK.path(expression.unresolved_attribute.unparsed_identifier)[-1]
        if kind == "expression_string":
            [named] = self._text().columns(expression.expression_string.expression, self._build.source(""), 0)
            return named.name or f"col{number}"
        return f"col{number}"

    def _of_call_function(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        return self._build.call(one.function_name, self._values(one.arguments, below, node), node)

    def _of_cast(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        value, kind = self._value(one.expr, below, node), one.type.WhichOneof("kind") or ""
        written = one.type_str.upper() if one.type_str.isalpha() else one.type_str
        sql = written or PLAIN_TYPES.get(kind, "")
        is_try = type(one).EvalMode.Name(one.eval_mode) == "EVAL_MODE_TRY"
        return Call("try_cast" if is_try else "cast", (value, Literal(sql or str(one.type), sql)))

    def _of_unresolved_extract_value(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        return extracted(self._value(one.child, below, node), self._value(one.extraction, below, node))

    def _of_update_fields(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        inner = [one.struct_expression, *([one.value_expression] if one.HasField("value_expression") else [])]
        return Opaque(self._build.node(), "withField or dropFields", tuple(self._values(inner, below, node)))

    def _of_window(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        made = self._value(one.window_function, below, node)
        partition = tuple(self._values(one.partition_spec, below, node))
        order = tuple(self._value(order.child, below, node) for order in one.order_spec)
        frames = type(one).WindowFrame.FrameType
        is_whole = one.frame_spec.lower.unbounded and one.frame_spec.upper.unbounded
        is_by_rows = one.frame_spec.frame_type == frames.FRAME_TYPE_ROW and not is_whole
        return windowed(made, node, partition, order, is_by_rows=is_by_rows)

    def _of_sort_order(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        return self._value(one.child, below, node)

    def _of_lambda_function(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        return Call("transform", (Literal(str(one.arguments), ""), self._value(one.function, below, node)))

    def _of_unresolved_named_lambda_variable(self, one: Any, _: Sequence[Relation], __: int) -> Expr:
        return Literal(f"lambda {'.'.join(one.name_parts)}", "")

    def _of_common_inline_user_defined_function(self, one: Any, below: Sequence[Relation], node: int) -> Expr:
        values = tuple(self._values(one.arguments, below, node))
        why = f"the function of Python {one.function_name}()"
        from pyspark.util import PythonEvalType

        of_one_row = (PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF,
                      PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_ARROW_UDF)  # fmt: skip
        if one.python_udf.eval_type not in of_one_row:
            return Aggregate(node, one.function_name, values)
        return Opaque(self._build.node(), why, values)
