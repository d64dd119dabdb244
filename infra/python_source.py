"""Reads Python functions and classes as syntax: what of them runs, and the names that they use."""

from __future__ import annotations

import ast
import copy
import dis
import functools
import importlib
import importlib.util
import inspect
import sysconfig
import textwrap
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from twofold.infra import PACKAGE, PACKAGES

Dotted = tuple[str, ...]
"""`a.b.c` as its parts."""
UNKNOWN = object()
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ITERATING = (ast.For, ast.ListComp, ast.DictComp, ast.Call)
_IN_ORDER = frozenset({"list", "tuple", "iter", "enumerate", "join"})
_PARSING = threading.Lock()


def parsed(code: FunctionType | type) -> ast.Module | None:
    """Returns the code without docstrings, comments and formatting, with its lines; None: it has no text."""
    # Threads that make syntax trees at once disturb each other (python/cpython#106905), as finding a class's text does.
    with _PARSING:
        return _parsed(code)


def module_tree(module: ModuleType) -> ast.Module:
    """Returns the text of a module; empty: it has none."""
    with _PARSING:
        return _parsed_module(module)


def assigned(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """Returns the expressions that a module assigns to the name when it is loaded."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = getattr(node, "value", None)
            if isinstance(value, ast.expr):
                yield value


@functools.lru_cache(maxsize=1_000)
def _parsed(code: FunctionType | type) -> ast.Module | None:
    try:  # a function that wraps another one has its own text in its code alone
        lines, first = inspect.getsourcelines(code.__code__ if isinstance(code, FunctionType) else code)
        tree = ast.parse("\n" * (first - 1) + textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):  # made by exec, or a lambda in the middle of an expression
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            opening = node.body[0]
            if (
                isinstance(opening, ast.Expr)
                and isinstance(opening.value, ast.Constant)
                and isinstance(opening.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


@functools.lru_cache(maxsize=1_000)
def _parsed_module(module: ModuleType) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(module))
    except (OSError, SyntaxError, TypeError):
        return ast.Module([], [])


@functools.lru_cache(maxsize=1_000)
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Returns all nodes of a tree that is changed no more."""
    return tuple(ast.walk(tree))


def without_own_imports(tree: ast.AST, module: str) -> str:
    """Returns the code without its imports from this repository, whose code is read itself."""
    imports = (node for node in nodes(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    if not any(_is_own_import(node, module) for node in imports):
        return ast.unparse(tree)
    left = copy.deepcopy(tree)
    for node in ast.walk(left):
        for part in ("body", "orelse", "finalbody"):
            statements = getattr(node, part, None)
            if isinstance(statements, list) and any(_is_own_import(s, module) for s in statements):
                kept = [s for s in statements if not _is_own_import(s, module)]
                setattr(node, part, kept or [ast.Pass()])
    return ast.unparse(left)


def _is_own_import(statement: ast.AST, module: str) -> bool:
    if isinstance(statement, ast.Import):
        return all(_is_our_module(alias.name) for alias in statement.names)
    return isinstance(statement, ast.ImportFrom) and _is_our_module(_source(statement, module))


def _source(statement: ast.ImportFrom, module: str) -> str:
    package = module.rpartition(".")[0]
    return importlib.util.resolve_name("." * statement.level + (statement.module or ""), package or None)


def paths(tree: ast.AST) -> Iterator[Dotted]:
    """Yields the names `a` and `a.b.c` that code reads."""
    for node in nodes(tree):
        if path := _path(node):
            yield path


def _path(node: ast.AST) -> Dotted:
    rest: list[str] = []
    while isinstance(node, ast.Attribute):
        rest.insert(0, node.attr)
        node = node.value
    return (node.id, *rest) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else ()


def outer_paths(node: ast.AST, local: frozenset[str] = frozenset()) -> Iterator[tuple[Dotted, int]]:
    """Returns the names that running the code reads from around it, each with all that follows it, and their lines.

    Args:
        local: names that are other things here.
    """
    path = _path(node)
    if path:
        if path[0] not in local:
            yield path, node.lineno  # type: ignore[attr-defined]
        return
    inner = local
    if isinstance(node, _FUNCTIONS):
        for outside in (*node.args.defaults, *filter(None, node.args.kw_defaults), *_decorators(node)):
            yield from outer_paths(outside, local)
        inner = local | _bound(node)
        below: list[ast.AST] = [*node.body] if isinstance(node.body, list) else [node.body]
    elif isinstance(node, ast.AnnAssign):
        below = [node.value] if node.value else []
    else:
        below = list(ast.iter_child_nodes(node))
        if isinstance(node, _COMPREHENSIONS):
            inner = local | {one.id for g in node.generators for one in ast.walk(g.target) if isinstance(one, ast.Name)}
    for child in below:
        yield from outer_paths(child, inner)


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.expr]:
    return [] if isinstance(node, ast.Lambda) else node.decorator_list


def _bound(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """Returns the parameters and local variables of a function; an import stands for its module."""
    given = function.args
    taken = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    names = {argument.arg for argument in taken if argument}
    waiting: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    outside: set[str] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Global):
            outside.update(node.names)
        elif not isinstance(node, ast.Lambda):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                names.add(node.name)
            waiting += ast.iter_child_nodes(node)
    return frozenset(names - outside)


def sets_in_order(tree: ast.AST, known: Mapping[str, object]) -> Iterator[int]:
    """Returns the lines in which the order of a set decides: Python chooses another one in each process."""

    def is_set(node: ast.AST) -> bool:
        match node:
            case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
                return is_set(left) or is_set(right)
        path = _path(node)
        return len(path) == 1 and isinstance(known.get(path[0]), set | frozenset)

    for node in nodes(tree):
        if not isinstance(node, _ITERATING):
            continue
        match node:
            case ast.For(iter=used):
                iterated = [used]
            case ast.ListComp(generators=loops) | ast.DictComp(generators=loops):
                iterated = [loop.iter for loop in loops]
            case (
                ast.Call(func=ast.Name(id=name), args=iterated)
                | ast.Call(func=ast.Attribute(attr="join" as name), args=iterated)
            ) if name in _IN_ORDER:
                pass
            case _:
                continue
        yield from (expression.lineno for expression in iterated if is_set(expression))


def imported(tree: ast.AST, module: str) -> Iterator[tuple[str, object]]:
    """Returns the modules of this repository that the code imports when it runs, and the names of what else it does."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                if _is_our_module(alias.name):
                    found, first = importlib.import_module(alias.name), importlib.import_module(top)
                    yield (alias.asname, found) if alias.asname else (top, first)
                else:
                    yield (alias.asname, Installed(alias.name)) if alias.asname else (top, Installed(top))
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, module)
            is_ours = _is_our_module(source)
            for alias in node.names:
                name = alias.asname or alias.name
                yield name, _member(source, alias.name) if is_ours else Installed(f"{source}.{alias.name}")


class Installed(ModuleType):
    """Stands for what code imports from elsewhere when it runs, which need not be imported to be known."""


def _member(module: str, name: str) -> object:
    member = getattr(importlib.import_module(module), name, UNKNOWN)
    return importlib.import_module(f"{module}.{name}") if member is UNKNOWN else member


def _is_our_module(name: str) -> bool:
    top = importlib.util.find_spec(name.split(".")[0])
    places = [] if top is None else [top.origin, *(top.submodule_search_locations or ())]
    return any(place and is_ours(place) for place in places)


@functools.lru_cache(maxsize=10_000)
def is_ours(file: str) -> bool:
    """Whether code is the platform's, or neither of the standard library nor installed."""
    path = Path(file)
    for own in (PACKAGE, *PACKAGES):
        if path.is_relative_to(own):
            return not _INSTALLED & set(path.relative_to(own).parts)
    return path.is_absolute() and not _INSTALLED & set(path.parts) and not path.is_relative_to(_STANDARD_LIBRARY)


def bytecode(code: CodeType) -> str:
    """Returns the bytecode of a function that has no text."""
    constants = [bytecode(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _constant(value: object) -> str:
    return f"frozenset({sorted(map(_constant, value))})" if isinstance(value, frozenset) else repr(value)


def names_in(code: CodeType) -> Iterator[str]:
    """Returns all names in the code of a function and of those within it."""
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def code_paths(code: CodeType) -> Iterator[tuple[Dotted, int]]:
    """Yields what `outer_paths` does, of a function that has no text."""
    path: Dotted = ()
    line = code.co_firstlineno
    for step in dis.get_instructions(code):
        if path and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            path = (*path, step.argval)
            continue
        if path:
            yield path, line
        path = (step.argval,) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF") else ()
        line = step.positions.lineno if step.positions and step.positions.lineno else line
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_paths(constant)


def written_in(body: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Finds the names that the body of a class sets, with what it sets them to."""
    for node in getattr(body, "body", ()):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, None
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                yield name, value
            case _:
                for part in ast.walk(node):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        yield part.id, None
