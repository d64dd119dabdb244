"""Mistakes that the plan of a table's function shows, without data and without a JVM."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tables.engine.declarations.unresolved_plan import Column, Frame, PlanReader, expressions_of, parts

_CLOCK = ("current_timestamp", "current_date", "now", "localtimestamp", "curdate")
_CHANCE = ("rand", "random", "randn", "uuid", "shuffle", "monotonically_increasing_id", "spark_partition_id")
_PLACE = ("input_file_name", "current_user", "session_user")
IMPURE = frozenset((*_CLOCK, *_CHANCE, *_PLACE))
_NEED_ORDER = frozenset(
    ("row_number", "lag", "lead", "first", "first_value", "last", "last_value", "nth_value", "ntile")
)
_CALL = re.compile(r"\b([a-z_]+)\s*\(", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True)
class PlanMistake:
    """One mistake.

    Attributes:
        only_on_stream: it is one only where a stream keeps open rows in its state.
    """

    message: str
    hint: str
    only_on_stream: bool = False


def find_mistakes(
    relation: Any, inputs: Mapping[str, Sequence[str] | None], identities: Mapping[str, Sequence[str]]
) -> list[PlanMistake]:
    """All of them, each once, from the inputs upwards.

    Args:
        relation: the plan.
        inputs: parameter of the function -> the columns of that input; None: not known.
        identities: the same -> the columns that identify a row of it.
    """
    return list(dict.fromkeys(_Finder(PlanReader(inputs), set(inputs), identities).find(relation)))


class _Finder:
    def __init__(self, reader: PlanReader, inputs: set[str], identities: Mapping[str, Sequence[str]]) -> None:
        self._reader, self._inputs, self._identities = reader, inputs, identities

    def find(self, relation: Any) -> Iterator[PlanMistake]:
        kind = relation.WhichOneof("rel_type")
        one = getattr(relation, kind)
        below = list(_children(one))
        for child in below:
            yield from self.find(child)
        if kind == "read":
            yield from self._of_read(one)
        if kind == "sql":
            yield from _impure(_CALL.findall(one.query))
        if kind in ("sort", "limit", "offset", "tail"):
            yield PlanMistake(
                f"{'orderBy' if kind == 'sort' else kind} has no meaning on a stream, whose rows do not end.",
                "Leave the order to those who query the table; for the first rows of a group take F.max_by, F.min_by.",
                only_on_stream=True,
            )
        expressions = list(expressions_of(one))
        frames = [self._reader.read(child) for child in below]
        for expression in expressions:
            yield from self._of_expression(expression, frames)
        yield from self._unknown(expressions, frames, below)
        if kind == "aggregate" and sum(map(_is_window, one.grouping_expressions)) > 1:
            yield PlanMistake(
                "groups by several time windows at once, which a stream cannot: it has one event time.",
                "Make a table of each window, and join them in a third one.",
                only_on_stream=True,
            )

    def _of_read(self, read: Any) -> Iterator[PlanMistake]:
        if read.WhichOneof("read_type") != "named_table":
            yield PlanMistake("reads files by itself.", _PURE)
        elif (name := read.named_table.unparsed_identifier) not in self._inputs:
            yield PlanMistake(f"reads {name!r}, which is none of its parameters.", _PURE)

    def _of_expression(self, expression: Any, frames: Sequence[Frame]) -> Iterator[PlanMistake]:
        for kind, one in parts(expression):
            called: list[str] = []
            if kind == "unresolved_function":
                called = [one.function_name.lower()]
                if one.is_distinct or called == ["count_distinct"]:
                    yield PlanMistake(
                        "counts distinct values exactly, which a stream cannot.",
                        'Use F.approx_count_distinct, and declare tolerances={"COLUMN": 0.05}; or leave closes_at '
                        "out: the table then follows changes.",
                        only_on_stream=True,
                    )
            elif kind == "expression_string":
                called = _CALL.findall(one.expression)
            yield from _impure(called)
            if kind == "window":
                yield PlanMistake(
                    "uses a window function (`.over(...)`), which a stream refuses.",
                    "Use an aggregate of the group, such as F.max_by; or leave closes_at out: the table then follows "
                    "changes.",
                    only_on_stream=True,
                )
                yield from self._of_order(one, frames)

    def _of_order(self, window: Any, frames: Sequence[Frame]) -> Iterator[PlanMistake]:
        function = window.window_function
        name = function.unresolved_function.function_name.lower() if _is_function(function) else ""
        if name not in _NEED_ORDER or len(frames) != 1:
            return
        ordered = [_attribute(order.child) for order in window.order_spec]
        by = [_attribute(expression) for expression in window.partition_spec]
        wanted = self._identity(frames[0])
        missing = [column for column in wanted if column not in (*ordered, *by)]
        if not ordered or (missing and None not in (*ordered, *by)):
            more = f"add {', '.join(missing)} to orderBy." if missing else "order by columns that identify a row."
            yield PlanMistake(
                f"calls {name}() without a total order: of rows that are equal in it any can be first.",
                f"So that stream and batch choose the same one, {more}",
            )

    def _identity(self, frame: Frame) -> list[str]:
        """The columns that identify a row of the frame; none where that is not known."""
        if frame.group is not None:
            found = [frame.name_among(origin) for _, origin in frame.group.by]
        elif len(frame.inputs) == 1 and frame.inputs[0] in self._identities and not frame.is_multiplied:
            (name,) = frame.inputs
            found = [frame.name_among(Column(name, column)) for column in self._identities[name]]
        else:
            return []
        return [column for column in found if column]

    def _unknown(
        self, expressions: Sequence[Any], frames: Sequence[Frame], below: Sequence[Any]
    ) -> Iterator[PlanMistake]:
        """Columns that none of the frames below has, however far below."""
        if not frames or any(frame.is_open for frame in frames):
            return
        known = {name.lower(): name for child in below for name in self._columns(child)}
        if "*" in known:
            return
        for expression in expressions:
            for kind, one in parts(expression):
                if kind != "unresolved_attribute":
                    continue
                names = [part.strip("`") for part in one.unparsed_identifier.split(".")]
                if not any(name.lower() in known for name in names) and all(map(_NAME.match, names)):
                    columns = list(dict.fromkeys(name for frame in frames for name in frame.columns))
                    near = difflib.get_close_matches(names[-1], columns, n=1)
                    yield PlanMistake(
                        f"names the column {'.'.join(names)!r}, which is not there.",
                        f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(columns)}.",
                    )

    def _columns(self, relation: Any) -> Iterator[str]:
        frame = self._reader.read(relation)
        yield from ("*",) if frame.is_open else ()
        yield from (*frame.columns, *frame.qualified)
        for child in _children(getattr(relation, relation.WhichOneof("rel_type"))):
            yield from self._columns(child)


_PURE = "A declaration is a pure function of its parameters: take times from the events, and other data from a topic."


def _children(message: Any) -> Iterator[Any]:
    for found, value in message.ListFields():
        if found.message_type is not None and found.message_type.name == "Relation":
            yield from value if found.is_repeated else (value,)


def _impure(called: Iterable[str]) -> Iterator[PlanMistake]:
    for name in map(str.lower, called):
        if name in IMPURE:
            yield PlanMistake(f"calls {name}(), which gives the stream and the batch different answers.", _PURE)


def _is_function(expression: Any) -> bool:
    return bool(expression.WhichOneof("expr_type") == "unresolved_function")


def _is_window(expression: Any) -> bool:
    return any(
        kind == "unresolved_function" and one.function_name.lower() in ("window", "session_window")
        for kind, one in parts(expression)
    )


def _attribute(expression: Any) -> str | None:
    """The column that the expression is; None: it is computed."""
    kind = expression.WhichOneof("expr_type")
    if kind == "unresolved_attribute":
        return str(expression.unresolved_attribute.unparsed_identifier).strip("`").split(".")[-1]
    return None
