"""Types of values, as far as they are known: which are exact, and which are of one type, so that equal ones are one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twofold_algebra.relations import Aggregate, Call, Column, Expr, Literal, Merged, Optional, Windowed

_WIDTHS = {"byte": 1, "tinyint": 1, "short": 2, "smallint": 2, "int": 4, "long": 8, "bigint": 8}
"""Whole numbers -> their bytes."""
_CASTS = {
    **dict.fromkeys(("INT", "INTEGER"), "int"), **dict.fromkeys(("BIGINT", "LONG"), "long"), "SMALLINT": "short",
    "TINYINT": "byte", "STRING": "string", "DATE": "date", "TIMESTAMP": "timestamp", "BOOLEAN": "boolean",
    "DOUBLE": "double", "FLOAT": "float",
}  # fmt: skip
_TEXTS = frozenset({"||", "concat", "lower", "upper", "substr", "substring", "trim"})
"""Functions that make a text of texts; it is null only if one of them is."""
_RESULTS = {
    **dict.fromkeys(("to_date", "date_add", "date_sub", "last_day", "next_day"), "date?"),
    **dict.fromkeys(("date_trunc", "to_timestamp", "from_utc_timestamp", "to_utc_timestamp"), "timestamp?"),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofmonth", "hour", "minute", "length"), "int?"),
    **dict.fromkeys(("date_format", "get_json_object", "regexp_extract", "split_part", "substring_index"), "string?"),
}
"""Functions whose result has a type whatever they are given."""


def kind_of(value: Expr) -> str:
    """Returns the type of a value, with a `?` if it can be null; empty: not known."""
    match value:
        case Column() | Merged():
            return value.kind
        case Optional():
            return _or_null(kind_of(value.value))
        case Literal(sql=sql):
            return "string" if sql.startswith("'") else "int" if sql.isdecimal() else ""
        case Aggregate(function="count" | "count_if"):
            return "long"
        case Aggregate(function="max" | "min", arguments=(one, *_)):
            return _or_null(kind_of(one))
        case Aggregate(function="sum", arguments=(one, *_)):
            kind = _plain(one)
            return "long?" if kind in _WIDTHS else f"{kind}?" if kind.startswith(("decimal", "double")) else ""
        case Windowed(function="row_number" | "rank" | "dense_rank"):
            return "int"
        case Call():
            return _kind_of_call(value)
    return ""


def _kind_of_call(call: Call) -> str:
    null = "" if all(map(is_never_null, call.arguments)) else "?"
    match call:
        case Call(function="case", arguments=(Literal(text="2 False"), _, then, other)):
            return common_kind([then, other])
        case Call(function="coalesce", arguments=values):
            kind = common_kind(values)
            return kind.removesuffix("?") if any(map(is_never_null, values)) else kind
        case Call(function="cast" | "try_cast", arguments=(_, Literal(text=to))) if to.upper() in _CASTS:
            return f"{_CASTS[to.upper()]}?"
        case Call(function="+" | "-", arguments=(one, other)) if {_plain(one), _plain(other)} <= _WIDTHS.keys():
            return max(_plain(one), _plain(other), key=lambda kind: _WIDTHS[kind]) + null
        case Call(function="field", arguments=(Call(function="window" | "session_window"), _)):
            return "timestamp?"
        case Call(function=function) if function in _TEXTS and is_exact(call.arguments[0]):
            return f"string{null}"
    return _RESULTS.get(call.function, "")


def common_kind(values: Sequence[Expr]) -> str:
    """Returns the type of values that all have the same one; empty: they do not, or it is not known."""
    kinds = [kind_of(one) for one in values]
    if len({kind.removesuffix("?") for kind in kinds}) != 1 or not kinds[0]:
        return ""
    return next((kind for kind in kinds if kind.endswith("?")), kinds[0])


def is_exact(value: Expr) -> bool:
    """Whether two of its values are either the same or not equal, whatever they are compared as: no fraction is."""
    kind = _plain(value)
    return kind in _WIDTHS or kind in ("string", "date", "timestamp", "boolean") or kind.startswith("decimal")


def is_plain(value: Expr) -> bool:
    """Whether it is known to be a number, a text, a time or a boolean."""
    return is_exact(value) or _plain(value) in ("double", "float")


def is_whole(value: Expr) -> bool:
    """Whether it is a whole number."""
    return _plain(value) in _WIDTHS


def is_never_null(value: Expr) -> bool:
    """Whether it is known not to be null."""
    kind = kind_of(value)
    return bool(kind) and not kind.endswith("?")


def is_same(one: Expr, other: Expr) -> bool:
    """Whether values that are equal in a comparison are one value: the texts `1` and `01` are both equal to 1."""
    return is_exact(one) and is_exact(other) and are_of_one_kind([one, other])


def are_of_one_kind(values: Iterable[Expr]) -> bool:
    """Whether values have one type.

    A column whose type is not known is taken for one of that type, but for no time: dates equal timestamps, too.
    One that is computed in a way that is not known has a type of its own, unless the same function makes all of them.
    """
    values = list(values)
    kinds = {"long" if kind in _WIDTHS else kind for one in values if (kind := _plain(one))}
    if kinds & {"date", "timestamp"} and not all(map(kind_of, values)):
        return False
    made = [one for one in values if isinstance(one, Call) and one.function != "field" and not kind_of(one)]
    if not made:
        return len(kinds) <= 1
    if {(one.function, len(one.arguments)) for one in values if isinstance(one, Call)} != {
        (made[0].function, len(made[0].arguments))
    } or not all(isinstance(one, Call) for one in values):
        return False
    return all(map(are_of_one_kind, zip(*(one.arguments for one in values if isinstance(one, Call)), strict=True)))


def _plain(value: Expr) -> str:
    return kind_of(value).removesuffix("?")


def _or_null(kind: str) -> str:
    return kind and f"{kind.removesuffix('?')}?"
