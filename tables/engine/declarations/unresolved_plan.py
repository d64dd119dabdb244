"""What the plan of a table's function says of its columns, read without a JVM.

Spark Connect's client writes down what a function does to a DataFrame as a protocol buffer, with the names of columns
and functions as they are written. Here the function gets a stand-in for each input, and each column of its result is
traced to where it is from. The client's fields are private: they are pinned with its version.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from infra.duration import parse_duration
from infra.errors import BadDeclaration

SQL_TEXT = "SQL text"
"""What makes the rows of `sql(...)`, of which nothing is known."""
ALL_ROWS = "a group of all rows"
_analysing: ContextVar[bool] = ContextVar("analysing", default=False)
_patching = threading.Lock()


@dataclass(frozen=True)
class Column:
    """The value of a column of an input."""

    input: str
    name: str


@dataclass(frozen=True)
class Shifted:
    """A time, so much later; `by` as it was written."""

    time: Origin
    ms: int
    by: str = field(compare=False)


@dataclass(frozen=True)
class Truncated:
    """The start of the day or hour of a time, which lies less than `within` from it."""

    time: Origin
    within: str


@dataclass(frozen=True)
class AnyOf:
    """The first of these that is not null."""

    values: tuple[Origin, ...]


@dataclass(frozen=True)
class Window:
    """A time window of a group: its time, its length as written; of a session, the gap."""

    time: Origin
    length: str
    is_session: bool


@dataclass(frozen=True)
class Edge:
    """Where a window starts or ends; of a session, of its first or last row."""

    window: Window
    is_start: bool


@dataclass(frozen=True)
class Extreme:
    """The least or the greatest value of a column in a group."""

    of: Origin
    is_least: bool


@dataclass(frozen=True)
class Computed:
    """What a group computes to group by it, distinguished from others by a number."""

    number: int


Origin = Column | Shifted | Truncated | AnyOf | Window | Edge | Extreme | Computed | None
"""Where a value is from; None: computed."""


@dataclass(frozen=True)
class Group:
    """What rows are grouped by, in order."""

    by: tuple[tuple[str, Origin], ...]


@dataclass(frozen=True)
class Join:
    """What the rows of two frames must agree in, and what they must be near in.

    Attributes:
        equal: pairs of values, left and right.
        near: a left and a right time, with the least and the greatest distance of the right one from the left one.
        how: the type of the join.
    """

    equal: tuple[tuple[Origin, Origin], ...]
    near: tuple[tuple[Origin, Origin, Shifted | None, Shifted | None], ...]
    how: str


@dataclass(frozen=True)
class Frame:
    """A relation.

    Attributes:
        columns: name -> origin, in order.
        is_open: there are other columns, whose names are not known.
        inputs: whose rows it is made from, one per mention.
        several: how a row can depend on several rows of an input, in words; empty: it does not.
        group, join: the one that it is made by, when nothing else is done to its rows.
        qualified: alias -> the columns under it.
        open_input: the input that the columns come from whose names are not known; empty: that is not known either.
    """

    columns: Mapping[str, Origin]
    is_open: bool = False
    inputs: tuple[str, ...] = ()
    several: str = ""
    group: Group | None = None
    join: Join | None = None
    is_multiplied: bool = False
    qualified: Mapping[str, Mapping[str, Origin]] = field(default_factory=dict)
    open_input: str = ""

    def origin(self, name: str) -> Origin:
        """Where the column of that name is from; None: that is not known."""
        known = _spelt(name, self.columns)
        if known is not None:
            return self.columns[known]
        return Column(self.open_input, name) if self.open_input else None

    def name_among(self, *wanted: Origin) -> str | None:
        """The first column with one of these origins."""
        names = [*self.columns, *(origin.name for origin in wanted if isinstance(origin, Column))]
        return next((name for name in names if (origin := self.origin(name)) is not None and origin in wanted), None)


class _Session:
    """As much of a Connect session as a plan takes."""

    is_mock_session = True
    session_id = "analysis"
    client: Any = None
    _user_id = "analysis"

    def sql(self, query: str, _: None, **inputs: Any) -> Any:
        """The text as it is, over what its inputs are."""
        from pyspark.sql.connect.dataframe import DataFrame
        from pyspark.sql.connect.plan import SQL, SubqueryAlias

        session: Any = self
        views = [SubqueryAlias(frame._plan, name) for name, frame in inputs.items()]
        return DataFrame(SQL(query, views=views), session)


def plan_of(function: Callable[..., Any], inputs: Iterable[str]) -> Any:
    """The plan of what the function returns, in which each input is read as a table of its parameter's name.

    Raises:
        BadDeclaration: the plan cannot be had without data, and why.
    """
    try:
        with _by_client():
            from pyspark.sql.connect.dataframe import DataFrame
            from pyspark.sql.connect.plan import Read

            session: Any = _Session()
            rows = function(**{name: DataFrame(Read(name), session) for name in inputs})
            return rows._plan.plan(session)
    except Exception as error:
        raise BadDeclaration(
            f"{function.__name__} cannot be read without running Spark ({type(error).__name__}: {str(error)[:80]})"
        ) from error


@contextmanager
def _by_client() -> Iterator[None]:
    """Let this thread's functions of Spark write plans of the client, whatever sessions the process has."""
    from pyspark.sql import utils

    with _patching:
        if not hasattr(utils.is_remote, "is_ours"):
            known = utils.is_remote

            def is_remote() -> bool:
                return _analysing.get() or known()

            is_remote.is_ours = True  # type: ignore[attr-defined]
            utils.is_remote = is_remote
    token = _analysing.set(True)
    try:
        yield
    finally:
        _analysing.reset(token)


class PlanReader:
    """Reads relations; of a kind that it does not know it says that a row can depend on several.

    Args:
        inputs: parameter of the function -> the columns of that input; None: not known.
    """

    def __init__(self, inputs: Mapping[str, Sequence[str] | None]) -> None:
        self._inputs = inputs

    def read(self, relation: Any) -> Frame:
        """The rows of a relation."""
        kind = relation.WhichOneof("rel_type")
        one = getattr(relation, kind)
        reader = getattr(self, f"_{kind}", None)
        if reader:
            frame: Frame = reader(one)
            return frame
        below = self._below(one)
        return _opaque(below, f"`{kind}`")

    def _below(self, one: Any) -> list[Frame]:
        fields = {found.name for found, _ in one.ListFields()}
        return [
            self.read(getattr(one, name))
            for name in ("input", "left_input", "right_input", "left", "right")
            if name in fields
        ]

    def _read(self, read: Any) -> Frame:
        name = read.named_table.unparsed_identifier
        columns = self._inputs.get(name)
        if columns is None:
            return Frame({}, is_open=True, inputs=(name,), open_input=name)
        return Frame({column: Column(name, column) for column in columns}, inputs=(name,))

    def _filter(self, one: Any) -> Frame:
        return self.read(one.input)

    def _hint(self, one: Any) -> Frame:
        return self.read(one.input)

    _repartition = _repartition_by_expression = _sort = _hint

    def _subquery_alias(self, one: Any) -> Frame:
        frame = self.read(one.input)
        return replace(frame, qualified={one.alias: frame.columns})

    def _project(self, one: Any) -> Frame:
        frame = self.read(one.input)
        columns: dict[str, Origin] = {}
        is_open, has_all = False, False
        for expression in one.expressions:
            kind = expression.WhichOneof("expr_type")
            if kind == "unresolved_star":
                alias = expression.unresolved_star.unparsed_target.removesuffix(".*")
                found = frame.qualified.get(_plain(alias)) if alias else frame.columns
                columns |= found or {}
                is_open = is_open or found is None or frame.is_open  # `a_struct.*`: its fields are not known
                has_all = has_all or not alias
                continue
            name = _name(expression)
            if name is None:
                is_open = True
            else:
                columns[name] = _origin(expression, frame)
        made = self._with(frame, columns, one.expressions, is_open=is_open)
        return made if has_all else replace(made, open_input="")

    def _with(self, frame: Frame, columns: Mapping[str, Origin], expressions: Iterable[Any], *, is_open: bool) -> Frame:
        all_parts = [part for expression in expressions for part in parts(expression)]
        made = replace(frame, columns=columns, is_open=is_open, qualified={})
        if any(kind == "window" for kind, _ in all_parts):
            made = replace(made, several="a window function", group=None, join=None)
        called = {one.function_name.lower() for kind, one in all_parts if kind == "unresolved_function"}
        return replace(made, is_multiplied=frame.is_multiplied or not called.isdisjoint(_MULTIPLYING))

    def _with_columns(self, one: Any) -> Frame:
        frame = self.read(one.input)
        columns = dict(frame.columns)
        for alias in one.aliases:
            known = _spelt(alias.name[0], columns)
            columns[known or alias.name[0]] = _origin(alias.expr, frame)
        return self._with(frame, columns, [alias.expr for alias in one.aliases], is_open=frame.is_open)

    def _with_columns_renamed(self, one: Any) -> Frame:
        frame = self.read(one.input)
        new = {rename.col_name: rename.new_col_name for rename in one.renames} or dict(one.rename_columns_map)
        named = {new.get(name, name): origin for name, origin in frame.columns.items()}
        return replace(frame, columns=named, open_input="")

    def _to_df(self, one: Any) -> Frame:
        frame = self.read(one.input)
        origins = list(frame.columns.values()) if not frame.is_open else [None] * len(one.column_names)
        named = dict(zip(one.column_names, origins, strict=False))
        return replace(frame, columns=named, is_open=False, open_input="")

    def _drop(self, one: Any) -> Frame:
        frame = self.read(one.input)
        gone = {*one.column_names, *(_name(column) for column in one.columns)}
        kept = {name: origin for name, origin in frame.columns.items() if name not in gone}
        return replace(frame, columns=kept, open_input="")

    def _deduplicate(self, one: Any) -> Frame:
        return _opaque([self.read(one.input)], "`dropDuplicates`")

    def _aggregate(self, one: Any) -> Frame:
        below = self.read(one.input)
        by: list[tuple[str, Origin]] = []
        columns: dict[str, Origin] = {}
        for number, expression in enumerate(one.grouping_expressions):
            origin, name = _origin(expression, below), _name(expression)
            if isinstance(origin, Window) and expression.WhichOneof("expr_type") != "alias":
                name = "session_window" if origin.is_session else "window"
            origin = origin or Computed(number)
            if name is not None:
                columns[name] = origin
            by.append((name or "an expression", origin))
        for expression in one.aggregate_expressions:
            name = _name(expression)
            if name is not None:
                columns[name] = _origin(expression, below)
        is_open = any(_name(expression) is None for expression in one.aggregate_expressions)
        why = below.several or ("a group" if by else ALL_ROWS)
        frame = Frame(columns, is_open=is_open, inputs=below.inputs, several=why)
        is_simple = one.group_type == type(one).GROUP_TYPE_GROUPBY and by and not below.several
        return replace(frame, group=Group(tuple(by))) if is_simple else frame

    def _join(self, one: Any) -> Frame:
        left, right = self.read(one.left), self.read(one.right)
        how = type(one).JoinType.Name(one.join_type).removeprefix("JOIN_TYPE_").lower()
        only_left = how in ("left_semi", "left_anti")
        columns = dict(left.columns) if only_left else {**right.columns, **left.columns}
        both = replace(
            _opaque([left, right], "a join"),
            columns=columns,
            qualified={**right.qualified, **left.qualified},
            is_open=left.is_open or (right.is_open and not only_left),
        )
        if left.several or right.several:
            return replace(both, several=left.several or right.several)
        equal = [(left.columns.get(name), right.columns.get(name)) for name in one.using_columns]
        conditions = list(_conjuncts(one.join_condition)) if one.HasField("join_condition") else []
        return replace(both, join=_joined(conditions, equal, left, right, how))

    def _with_relations(self, one: Any) -> Frame:
        return _opaque([self.read(reference) for reference in one.references], SQL_TEXT)

    def _set_op(self, one: Any) -> Frame:
        frames = self._below(one)
        kinds = _opaque(frames, "a union")
        return replace(kinds, columns=dict.fromkeys(name for frame in frames for name in frame.columns))


def _opaque(below: Sequence[Frame], why: str) -> Frame:
    """Rows that are made from these in a way that says nothing of their columns."""
    several = next((frame.several for frame in below if frame.several), why)
    return Frame({}, is_open=True, inputs=tuple(name for frame in below for name in frame.inputs), several=several)


def _joined(
    conditions: Sequence[Any], equal: Sequence[tuple[Origin, Origin]], left: Frame, right: Frame, how: str
) -> Join:
    pairs = list(equal)
    least: dict[tuple[Origin, Origin], Shifted | None] = {}
    greatest: dict[tuple[Origin, Origin], Shifted | None] = {}
    both = replace(left, columns={**right.columns, **left.columns}, qualified={**right.qualified, **left.qualified})
    for condition in conditions:
        if condition.WhichOneof("expr_type") != "unresolved_function":
            continue
        function = condition.unresolved_function
        if function.function_name in ("==", "<=>", "<=", "<", ">=", ">") and len(function.arguments) == 2:
            one, other = (_origin(argument, both) for argument in function.arguments)
            if function.function_name in ("==", "<=>"):
                pairs.append((one, other))
                continue
            later, earlier = (one, other) if function.function_name in (">=", ">") else (other, one)
            # The later is at least the earlier: which of the two is of the right frame decides what is bounded.
            _bound(later, earlier, left.inputs, least, greatest)
    near = [(*times, least.get(times), greatest.get(times)) for times in dict.fromkeys([*least, *greatest])]
    return Join(tuple(pairs), tuple(near), how)


def _bound(
    later: Origin,
    earlier: Origin,
    left: Sequence[str],
    least: dict[tuple[Origin, Origin], Shifted | None],
    greatest: dict[tuple[Origin, Origin], Shifted | None],
) -> None:
    """Note what `later >= earlier` says of the distance from the left time to the right one."""
    a, b = _unshifted(later), _unshifted(earlier)
    if not isinstance(a, Column) or not isinstance(b, Column) or a.input == b.input:
        return
    ahead = _shift(later) - _shift(earlier)  # a + ahead >= b
    text = next((o.by for o in (later, earlier) if isinstance(o, Shifted)), "0 seconds")
    if a.input in left:  # b - a <= ahead
        greatest[a, b] = Shifted(a, ahead, text)
    else:  # a - b >= -ahead
        least[b, a] = Shifted(b, -ahead, text)


def _unshifted(origin: Origin) -> Origin:
    return origin.time if isinstance(origin, Shifted) else origin


def _shift(origin: Origin) -> int:
    return origin.ms if isinstance(origin, Shifted) else 0


def _conjuncts(condition: Any) -> Iterator[Any]:
    if condition.WhichOneof("expr_type") == "unresolved_function":
        function = condition.unresolved_function
        if function.function_name == "and":
            for argument in function.arguments:
                yield from _conjuncts(argument)
            return
    yield condition


def _name(expression: Any) -> str | None:
    """The name of the column that the expression makes; None: Spark makes one up."""
    kind = expression.WhichOneof("expr_type")
    if kind == "alias":
        return str(expression.alias.name[0]) if len(expression.alias.name) == 1 else None
    if kind == "unresolved_attribute":
        return _plain(expression.unresolved_attribute.unparsed_identifier).split(".")[-1]
    if kind == "expression_string" and _IDENTIFIER.match(expression.expression_string.expression):
        return _plain(expression.expression_string.expression).split(".")[-1]
    return None


_IDENTIFIER = re.compile(r"[A-Za-z_][\w.]*\Z")
_INTERVAL = re.compile(r"INTERVAL\s+'?([^']+?)'?\Z", re.IGNORECASE)
_TRUNCATIONS = {"hour": "1 hour", "day": "1 day", "minute": "1 minute"}
_MULTIPLYING = frozenset(
    {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack"}
)


def _plain(name: str) -> str:
    return name.replace("`", "")


def _spelt(name: str, columns: Mapping[str, Origin]) -> str | None:
    """The name as the columns have it: Spark's names do not distinguish capital letters from small ones."""
    return name if name in columns else next((c for c in columns if c.lower() == name.lower()), None)


def _origin(expression: Any, frame: Frame) -> Origin:
    """Where the value of an expression is from."""
    kind = expression.WhichOneof("expr_type")
    if kind == "alias":
        return _origin(expression.alias.expr, frame)
    if kind == "unresolved_attribute":
        return _resolved(_plain(expression.unresolved_attribute.unparsed_identifier), frame)
    if kind == "expression_string" and _IDENTIFIER.match(expression.expression_string.expression):
        return _resolved(expression.expression_string.expression, frame)
    if kind == "unresolved_function":
        return _of_function(expression.unresolved_function, frame)
    return None


def _resolved(name: str, frame: Frame) -> Origin:
    head, _, rest = name.partition(".")
    if not rest or _spelt(name, frame.columns):
        return frame.origin(name)
    if head in frame.qualified:
        under = _spelt(rest, frame.qualified[head])
        return frame.qualified[head][under] if under else None
    outer = frame.columns.get(head)
    if isinstance(outer, Window) and rest in ("start", "end"):
        return Edge(outer, rest == "start")
    return None


def _of_function(function: Any, frame: Frame) -> Origin:
    name, arguments = function.function_name.lower(), function.arguments
    if not arguments:
        return None
    first = _origin(arguments[0], frame)
    if name in ("window", "session_window") and len(arguments) > 1:
        length = arguments[1].literal.string if arguments[1].WhichOneof("expr_type") == "literal" else ""
        return Window(first, length, name == "session_window") if length else None
    if name in ("min", "max") and first is not None:
        return Extreme(first, name == "min")
    if name == "coalesce":
        values = tuple(_origin(argument, frame) for argument in arguments)
        return AnyOf(values) if None not in values else None
    if name in ("+", "-") and first is not None and len(arguments) == 2:
        by = _interval(arguments[1])
        if by is None:
            return None
        ms = by[0] if name == "+" else -by[0]
        return Shifted(first, ms, by[1])
    if name in ("to_date", "from_utc_timestamp", "date_trunc"):
        return _truncated(name, arguments, frame)
    return None


def _truncated(name: str, arguments: Any, frame: Frame) -> Origin:
    if name == "date_trunc":
        unit, time = arguments[0].literal.string.lower(), _origin(arguments[1], frame)
        return Truncated(time, _TRUNCATIONS[unit]) if unit in _TRUNCATIONS and time is not None else None
    if name == "to_date" and len(arguments) == 1:
        inner, time = arguments[0], _origin(arguments[0], frame)
        if inner.WhichOneof("expr_type") == "unresolved_function":
            moved = inner.unresolved_function
            if moved.function_name == "from_utc_timestamp":  # no zone is further than 14 hours from UTC
                time = _origin(moved.arguments[0], frame)
                return Truncated(time, "2 days") if time is not None else None
        return Truncated(time, "1 day") if time is not None else None
    return None


def _interval(expression: Any) -> tuple[int, str] | None:
    """Milliseconds and text of `INTERVAL 24 HOURS`; None: something else, or no fixed length."""
    if expression.WhichOneof("expr_type") != "expression_string":
        return None
    written = _INTERVAL.match(expression.expression_string.expression.strip())
    if not written:
        return None
    text = written[1].lower()
    try:
        return parse_duration(text, "interval"), text
    except BadDeclaration:
        return None


def parts(expression: Any) -> Iterator[tuple[str, Any]]:
    """An expression and all in it, by kind."""
    kind = expression.WhichOneof("expr_type")
    if kind is None:
        return
    one = getattr(expression, kind)
    yield kind, one
    for inner in expressions_of(one):
        yield from parts(inner)


def expressions_of(message: Any) -> Iterator[Any]:
    """The outermost expressions of a relation, those of what it reads left out."""
    for found, value in message.ListFields():
        if found.message_type is None or found.message_type.name == "Relation":
            continue
        for one in value if found.is_repeated else (value,):
            if found.message_type.name == "Expression":
                yield one
            elif hasattr(one, "ListFields"):
                yield from expressions_of(one)
