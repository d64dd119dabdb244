"""Looks into Python objects: which file their code is of, what they hold, what a class got after its text."""

from __future__ import annotations

import ast
import enum
import functools
import inspect
from collections.abc import Iterator, Mapping
from types import FunctionType, MappingProxyType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from twofold.infra.python_source import is_ours, written_in

_SET_BY_PYTHON = frozenset({"_abc_impl", "_is_protocol", "_is_runtime_protocol"})


def is_elsewhere(value: object) -> bool:
    """Whether it is a module, class or function of Python or of an installed package."""
    if isinstance(value, ModuleType | type):
        return not is_of_ours(value)
    return inspect.isroutine(value) and not has_our_text(inspect.unwrap(value, stop=has_our_text))


def has_our_text(function: object) -> bool:
    """Whether it is a function, or a method of an object, whose code is in this repository."""
    function = function.__func__ if isinstance(function, MethodType) else function
    return isinstance(function, FunctionType) and is_ours(function.__code__.co_filename)


def is_of_ours(kind: type | ModuleType) -> bool:
    return is_ours(file_of(kind))


@functools.lru_cache(maxsize=10_000)
def file_of(kind: type | ModuleType) -> str:
    try:
        return inspect.getfile(kind)
    except (TypeError, OSError):  # built in
        return ""


def name_in_module(value: object) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def dispatched(function: object) -> dict[str, object]:
    """Returns the functions of a `functools.singledispatch`, by type of argument."""
    registered = getattr(function, "registry", None)
    return (
        {name_in_module(kind): value for kind, value in registered.items()}
        if isinstance(registered, MappingProxyType)
        else {}
    )


def sorted_by_name(named: Mapping[str, object]) -> dict[str, object]:
    return dict(sorted(named.items()))


def attributes(value: object) -> dict[str, object]:
    """Returns what an object holds, in slots or not."""
    known = {name: part for kind in type(value).__mro__ for name, part in vars(kind).items()}
    slots = [name for name, part in known.items() if isinstance(part, MemberDescriptorType) and hasattr(value, name)]
    return sorted_by_name({**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})})


def set_later(kind: type, tree: ast.AST | None) -> Iterator[tuple[str, object]]:
    """Finds the attributes of a class that are not as its text says."""
    if isinstance(kind, enum.EnumMeta):
        return
    written = dict(written_in(tree.body[0])) if isinstance(tree, ast.Module) and tree.body else {}
    for name, value in vars(kind).items():
        function = inspect.unwrap(value, stop=has_our_text) if callable(value) else value
        is_own = has_our_text(function)
        if name not in written:
            is_later = is_own or not (name.startswith("__") or name in _SET_BY_PYTHON)
        else:
            is_later = _differs(written[name], value) if written[name] else is_own and function.__name__ != name
        if is_later and not isinstance(value, MemberDescriptorType):
            yield name, value


def _differs(written: Any, value: object) -> bool:
    """Whether a constant of the text is another value by now."""
    try:
        constant = ast.literal_eval(written)
        return type(constant) is not type(value) or bool(constant != value)
    except (ValueError, TypeError):  # no constant
        return False


def is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is the only way to know
    except ValueError:
        return False
    return True
