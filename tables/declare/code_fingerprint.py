"""Fingerprint of a table's definition: its function, the code that this calls, its parameters."""

from __future__ import annotations

import ast
import copy
import enum
import functools
import hashlib
import importlib
import importlib.util
import inspect
import re
import sysconfig
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from infra.errors import BadDeclaration
from infra.settings import ROOT
from quality.rule import TABLE_METHODS, Rule
from tables.declare.parameter_checks import BOUND
from tables.declare.spark_names import SparkName
from tables.declare.table import Table, table
from tables.declare.topic import Topic

_PLAIN = (str, bytes, bool, int, float, complex, type(None), type(...))
_TEXT_SAYS_ALL = re.compile(
    r"collections\._tuplegetter|datetime\.\w+|decimal\.Decimal|fractions\.Fraction|msgspec\.json\.Decoder"
    r"|numpy\.dtypes\.\w+|operator\.\w+|pathlib\.\w+|pyarrow\.lib\.(\w+Type|Field|Schema)"
    r"|pyspark\.sql\.types\.\w+|re\.Pattern|types\.UnionType|typing\.\w+|uuid\.UUID|zoneinfo\.ZoneInfo"
)
"""Types of other packages whose `repr` is the whole value."""
_TYPE_SAYS_ALL = re.compile(
    r"_contextvars\.ContextVar|_thread\.\w+|builtins\.object|logging\.Logger|msgspec\.json\.Encoder"
)
"""Types of other packages whose values change no row."""
_TYPING = frozenset({"collections.abc", "types", "typing", "typing_extensions"})
_SET_BY_PYTHON = frozenset({"_abc_impl", "_is_protocol", "_is_runtime_protocol"})
# What these say does not change a row: they judge rows, compare them, or say how often the stream looks.
_NOT_DEFINING = BOUND | frozenset(
    {"derive", "checks", "tolerances", "trigger_interval", "owner", "tags", "freshness", "approve_above"}
)
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])


def fingerprint(table: Table) -> str:
    """Twelve hex digits that change when the rows that the table should hold may change.

    They follow the function, the functions, classes and constants of this repository that it uses, directly or through
    others, and the parameters of the declaration. They do not follow comments, docstrings, formatting, rules, or
    installed packages.
    """
    return digest([parameters(table, _NOT_DEFINING), *_Reader().read(table.derive)])


def read_code(function: Callable[..., object]) -> tuple[str, ...]:
    """Lines that change when what the function does may change.

    Raises:
        BadDeclaration: it uses a value that cannot be written down, so that a change of it would not be seen.
    """
    return tuple(_Reader().read(function))


def parameters(declaration: Table | Topic, without: frozenset[str]) -> str:
    """The parameters that are given, but for some, as text."""
    values = {f.name: getattr(declaration, f.name) for f in fields(declaration) if f.name not in without}
    return repr(sorted((name, str(value)) for name, value in values.items() if value is not None))


def digest(lines: Sequence[str]) -> str:
    """Twelve hex digits of these lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


class _Reader:
    """Writes down what a function depends on, each thing once, in the order in which it is met."""

    def __init__(self) -> None:
        self._met: dict[int, int] = {}
        self._kept: list[object] = []  # an id is used again once its object is gone
        self._names: list[str] = []

    def read(self, value: object) -> Iterator[str]:
        """Lines that change when what the value does may change."""
        if isinstance(value, _PLAIN):
            yield repr(value)
            return
        if id(value) in self._met:
            yield f"thing {self._met[id(value)]}"
            return
        if not isinstance(value, tuple | frozenset):  # equal ones may be one object or two: the interpreter's choice
            self._met[id(value)] = len(self._met)
            self._kept.append(value)
        if isinstance(value, functools.partial):
            yield "partial"
            yield from self.read([value.func, list(value.args), value.keywords])
        elif isinstance(value, classmethod | staticmethod):
            yield from self.read(value.__func__)
        elif isinstance(value, property):
            yield from self.read([value.fget, value.fset])
        elif isinstance(value, MethodType):
            yield from self.read([value.__func__, value.__self__])
        elif isinstance(value, Mapping):
            for key in sorted(value, key=repr):
                yield from self.read([key, value[key]])
        elif isinstance(value, set | frozenset):
            yield from self.read(sorted(value, key=repr))
        elif isinstance(value, Sequence):
            yield f"{type(value).__name__} of {len(value)}"
            for item in value:
                yield from self.read(item)
        else:
            yield from self._read_code(value)

    def _read_code(self, value: object) -> Iterator[str]:
        function = inspect.unwrap(value) if callable(value) else value
        if isinstance(function, FunctionType):
            if _is_ours(function.__code__.co_filename):
                yield from self._read_function(function)
            else:
                yield _name(function)
        elif isinstance(function, type):
            if _is_ours(_file(function)):
                yield from self._read_class(function)
            else:
                yield _name(function)
        elif isinstance(function, enum.Enum):
            yield f"{function} {function.value!r}"
        elif _is_ours(_file(type(function))):
            yield from self.read([type(function), _attributes(function)])
        elif isinstance(function, ModuleType) or (callable(function) and type(function).__module__ in _TYPING):
            yield _name(function)
        elif isinstance(function, Path) and function.is_relative_to(ROOT):
            yield f"path {function.relative_to(ROOT)}"  # the same in every checkout
        elif inspect.isroutine(function):
            yield _name(function)
            owner = getattr(function, "__self__", None)
            if not isinstance(owner, ModuleType | type | None):
                yield from self.read(owner)
        else:
            yield from self._read_value(function)

    def _read_value(self, value: object) -> Iterator[str]:
        """Writes down a value of a type of another package."""
        kind = _name(type(value))
        if kind == "numpy.ndarray":
            array: Any = value
            yield f"{array.dtype!r} {array.shape}"
            yield from self.read(array.tolist() if array.dtype.hasobject else hashlib.sha256(array.tobytes()).digest())
        elif _TYPE_SAYS_ALL.fullmatch(kind):
            yield kind
        elif _TEXT_SAYS_ALL.fullmatch(kind) or _is_number(value):
            yield repr(value)
            if isinstance(value, re.Pattern) and len(repr(value.pattern)) > 200:  # where its text ends
                yield from self.read([value.pattern, value.flags])
        else:
            used = ".".join(self._names[-1:]) or "it"
            raise BadDeclaration(
                f"{used} is or holds a {kind}, which cannot be written down, so that a change of it would not be seen.",
                hint="Keep it as texts, numbers, dates, and lists, dicts or dataclasses of these.",
            )

    def _read_function(self, function: FunctionType) -> Iterator[str]:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        values = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells if _is_filled(cell)}}
        tree = _tree(function)
        tree = tree and _with_imports(tree, values)
        yield _without_own_imports(tree, function.__module__) if tree else _bytecode(function.__code__)
        yield from self.read([function.__defaults__, function.__kwdefaults__])
        # A local variable may have the name of something around the function, of the declared table for example.
        for local in (*function.__code__.co_varnames, *function.__code__.co_cellvars):
            values.pop(local, None)
        if tree:
            yield from self._read_names(tree, values, function.__module__)
        else:
            for name in sorted(set(_names(function.__code__)) & set(values)):
                yield from self.read(values[name])

    def _read_class(self, kind: type) -> Iterator[str]:
        tree = _tree(kind)
        if tree is None:
            yield _name(kind)
            for base in kind.__bases__:
                yield from self.read(base)
        else:
            read = _without_table_methods(tree) if issubclass(kind, Rule) else tree
            yield _without_own_imports(read, kind.__module__)
            module = inspect.getmodule(kind)
            yield from self._read_names(read, vars(module) if module else {}, kind.__module__)
        for name, value in _set_later(kind, tree):
            yield name
            yield from self.read(value)

    def _read_names(self, tree: ast.AST, known: Mapping[str, object], module: str) -> Iterator[str]:
        """The values of names in the code: those that it imports itself, then those around it."""
        seen = {**known, **dict(_imported(tree, module))}
        for path in sorted(set(_paths(tree))):
            value, rest = seen.get(path[0], _UNKNOWN), list(path[1:])
            while rest and isinstance(value, ModuleType) and _is_ours(getattr(value, "__file__", None) or ""):
                value = getattr(value, rest.pop(0), _UNKNOWN)
            if value is not _UNKNOWN and not isinstance(value, ModuleType):
                yield ".".join(path)
                self._names.append(".".join(path))
                yield from self.read(value)
                self._names.pop()


_UNKNOWN = object()
_PARSING = threading.Lock()


def _tree(code: FunctionType | type) -> ast.AST | None:
    """The code without what does not run: docstrings, comments, formatting; None where its text is not available."""
    # Threads that make syntax trees at once disturb each other (python/cpython#106905), as finding a class's text does.
    with _PARSING:
        return _parsed(code)


@functools.lru_cache(maxsize=1_000)
def _parsed(code: FunctionType | type) -> ast.AST | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError, TypeError):  # made by exec, or a lambda in the middle of an expression
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


def _with_imports(tree: ast.AST, known: Mapping[str, object]) -> ast.AST:
    """The function without `@table`, which says nothing of it, and Spark's names as the imports that they stand for."""
    function = tree.body[0] if isinstance(tree, ast.Module) else None
    if not isinstance(function, ast.FunctionDef):
        return tree
    used = {path[0] for statement in function.body for path in _paths(statement)}
    names = {name: value for name in used if isinstance(value := known.get(name), SparkName)}
    imports = sorted((value.import_as(name) for name, value in names.items()), key=ast.unparse)
    others = [d for d in function.decorator_list if not (isinstance(d, ast.Call) and _found(d.func, known) is table)]
    declared = copy.copy(function)
    declared.body, declared.decorator_list = [*imports, *function.body], others
    return ast.Module([declared], [])


def _found(name: ast.expr, known: Mapping[str, object]) -> object:
    return known.get(name.id) if isinstance(name, ast.Name) else None


def _without_table_methods(tree: ast.AST) -> ast.AST:
    """Returns the class of a rule as records are checked by it."""
    left = copy.deepcopy(tree)
    for node in ast.walk(left):
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if getattr(part, "name", None) not in TABLE_METHODS]
    return left


def _without_own_imports(tree: ast.AST, module: str) -> str:
    """The code without its imports from this repository: what they give is read itself, wherever its file is."""
    if not any(_is_own_import(node, module) for node in ast.walk(tree)):
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


def _paths(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """`a` and `a.b.c` as they are read in the code."""
    for node in ast.walk(tree):
        rest: list[str] = []
        while isinstance(node, ast.Attribute):
            rest.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield (node.id, *rest)


def _imported(tree: ast.AST, module: str) -> Iterator[tuple[str, object]]:
    """The modules of this repository that the code imports when it runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_our_module(alias.name):
                    found = importlib.import_module(alias.name)
                    top = importlib.import_module(alias.name.split(".")[0])
                    yield (alias.asname, found) if alias.asname else (alias.name.split(".")[0], top)
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, module)
            if _is_our_module(source):
                for alias in node.names:
                    yield alias.asname or alias.name, _member(source, alias.name)


def _member(module: str, name: str) -> object:
    member = getattr(importlib.import_module(module), name, _UNKNOWN)
    return importlib.import_module(f"{module}.{name}") if member is _UNKNOWN else member


def _is_our_module(name: str) -> bool:
    top = importlib.util.find_spec(name.split(".")[0])
    places = [] if top is None else [top.origin, *(top.submodule_search_locations or ())]
    return any(place and _is_ours(place) for place in places)


def _is_ours(file: str) -> bool:
    """Whether code is neither of the standard library nor installed."""
    path = Path(file)
    return path.is_absolute() and not _INSTALLED & set(path.parts) and not path.is_relative_to(_STANDARD_LIBRARY)


def _file(kind: type) -> str:
    try:
        return inspect.getfile(kind)
    except (TypeError, OSError):  # built in
        return ""


def _name(value: object) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _is_number(value: object) -> bool:
    """Whether it is a scalar of NumPy."""
    return any(_name(kind) == "numpy.generic" for kind in type(value).__mro__)


def _attributes(value: object) -> dict[str, object]:
    """Returns what an object holds, in slots or not."""
    known = {name: part for kind in type(value).__mro__ for name, part in vars(kind).items()}
    slots = [name for name, part in known.items() if isinstance(part, MemberDescriptorType) and hasattr(value, name)]
    return {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}


def _set_later(kind: type, tree: ast.AST | None) -> Iterator[tuple[str, object]]:
    """Finds the attributes of a class that are not as its text says."""
    if isinstance(kind, enum.EnumMeta):
        return
    written = dict(_written(tree.body[0])) if isinstance(tree, ast.Module) and tree.body else {}
    for name, value in vars(kind).items():
        function = inspect.unwrap(value) if callable(value) else value
        is_ours = isinstance(function, FunctionType) and _is_ours(function.__code__.co_filename)
        if name not in written:
            is_later = is_ours or not (name.startswith("__") or name in _SET_BY_PYTHON)
        else:
            is_later = _differs(written[name], value) if written[name] else is_ours and function.__name__ != name
        if is_later and not isinstance(value, MemberDescriptorType):
            yield name, value


def _written(body: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
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
                for one in ast.walk(node):
                    if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                        yield one.id, None


def _differs(written: Any, value: object) -> bool:
    """Whether a constant of the text is another value by now."""
    try:
        constant = ast.literal_eval(written)
        return type(constant) is not type(value) or bool(constant != value)
    except (ValueError, TypeError):  # no constant
        return False


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is the only way to know
    except ValueError:
        return False
    return True


def _names(code: CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _bytecode(code: CodeType) -> str:
    constants = [_bytecode(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
