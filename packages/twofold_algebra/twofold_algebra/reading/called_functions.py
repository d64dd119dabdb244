"""The functions of Spark that a table's function calls, also if the algebra understands nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from twofold_algebra.reading.function_plan import plan_of
from twofold_algebra.sql.impure_functions import find_impure, is_impure


@lru_cache
def impure_function(function: Callable[..., Any], inputs: tuple[str, ...]) -> str | None:
    """Returns an impure function of Spark that the function calls, or None.

    Args:
        inputs: the parameters of the function.

    Raises:
        Unreadable: the plan cannot be had without data, and why.
    """
    return next(filter(None, map(_impure, messages(plan_of(function, inputs)))), None)


def _impure(message: Any) -> str | None:
    match message.DESCRIPTOR.name:
        case "UnresolvedFunction" | "CallFunction":
            name: str = message.function_name.rpartition(".")[2].lower()
            return name if is_impure(name, message.arguments) else None
        case "ExpressionString":
            return find_impure(message.expression)
        case "SQL":
            return find_impure(message.query)
    return None


def messages(root: Any, is_left_out: Callable[[Any], bool] = lambda _: False) -> Iterator[Any]:
    """Yields a message and all messages within it.

    Args:
        is_left_out: whether a relation within it is left out, with all within that.
    """
    from google.protobuf.message import Message

    waiting = [root]
    while waiting:
        match waiting.pop():
            case Message() as one:
                if one.DESCRIPTOR.name != "Relation" or not is_left_out(one):
                    yield one
                    waiting += (value for _, value in one.ListFields())
            case Mapping() as named:
                waiting += named.values()
            case [*several]:
                waiting += several
