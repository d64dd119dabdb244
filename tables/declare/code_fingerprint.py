"""Fingerprint of a table's definition: its function, the code that this calls, its parameters."""

from __future__ import annotations

import ast
import builtins
import copy
import enum
import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from pathlib import Path
from types import FunctionType, GenericAlias, MethodType, ModuleType
from typing import Any

from twofold.infra.errors import BadDeclaration
from twofold.infra.project.project import project
from twofold.infra.python_source import (
    UNKNOWN,
    Dotted,
    assigned,
    bytecode,
    code_paths,
    imported,
    module_tree,
    names_in,
    nodes,
    outer_paths,
    parsed,
    paths,
    sets_in_order,
    without_own_imports,
)
from twofold.infra.python_values import (
    attributes,
    dispatched,
    file_of,
    has_our_text,
    is_elsewhere,
    is_filled,
    is_of_ours,
    name_in_module,
    set_later,
    sorted_by_name,
)
from twofold.quality.rule import TABLE_METHODS, Rule
from twofold.tables.declare.parameter_checks import BOUND
from twofold.tables.declare.refusals.code_mistakes import SET_ORDER, Use, is_impure, name_of
from twofold.tables.declare.refusals.mistake_list import require_none
from twofold.tables.declare.spark_names import SparkName
from twofold.tables.declare.table import Table, table
from twofold.tables.declare.topic import Topic

_PLAIN = (str, bytes, bool, int, float, complex, type(None), type(...))
_TEXT_SAYS_ALL = re.compile(
    r"builtins\.slice|collections\._tuplegetter|datetime\.\w+|decimal\.Decimal|fractions\.Fraction|msgspec\.json\.Decoder"
    r"|numpy\.dtypes\.\w+|operator\.\w+|pathlib\.\w+|pyarrow\.lib\.(\w+Type|Field|Schema)"
    r"|pyspark\.sql\.types\.\w+|re\.Pattern|types\.UnionType|typing\.\w+|uuid\.UUID|zoneinfo\.ZoneInfo"
)
"""Types of other packages whose `repr` is the whole value."""
_TYPE_SAYS_ALL = re.compile(
    r"_contextvars\.ContextVar|_thread\.\w+|builtins\.object|logging\.Logger|msgspec\.json\.Encoder"
)
"""Types of other packages whose values change no row."""
_TYPING = frozenset({"collections.abc", "types", "typing", "typing_extensions"})
_HOLDING = frozenset({"array", "builtins", "collections", "types"})
_THEN = {
    "'twofold.features.capture.": "'infra.capture.",
    "'twofold.": "'",
    "'Import them from twofold.'": "'Import them from tables.'",
    "`twofold recapture": "`./twofold recapture",
}
"""What names our modules in code that fingerprints follow, and how it was written when homes kept their first ones."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")
_WRITABLE = "Keep it as texts, numbers, dates, and lists, dicts or dataclasses of these."
# What these say does not change a row: they judge rows, compare them, or say how often the stream looks.
_NOT_DEFINING = BOUND | frozenset(
    {"derive", "checks", "tolerances", "owner", "tags", "freshness", "approve_above", "outputs", "pure"}
)

_NOT_OF_RECORDS = ("origin", "captures", "covered", "cover")
"""What a topic says that does not change what its records become."""


def fingerprint(table: Table) -> str:
    """Computes twelve hex digits that change if the rows that the table should have may change.

    They follow the function, the functions, classes and constants of this repository that it uses, directly or through
    others, and the parameters of the declaration. They do not follow comments, docstrings, formatting, rules, or
    installed packages.
    """
    return digest([parameters(table, _NOT_DEFINING), *read_code(table.derive).complete_lines])


@dataclass(frozen=True)
class Code:
    """A function with all of this repository that it uses.

    Attributes:
        lines: they change when what it does may change.
        uses: what it uses of Python and of installed packages.
        unwritten: values of which `lines` do not hold all, so that a change of them would not be seen.
    """

    lines: tuple[str, ...]
    uses: tuple[Use, ...]
    unwritten: tuple[BadDeclaration, ...]

    @property
    def complete_lines(self) -> tuple[str, ...]:
        """Its lines.

        Raises:
            BadDeclaration: they are not complete.
        """
        require_none(self.unwritten)
        return self.lines


@functools.lru_cache(maxsize=1_000)
def read_code(function: Callable[..., object]) -> Code:
    """Follows all code that a function reaches, once in a process, for its fingerprint and for what it uses."""
    reader = _Reader()
    try:
        lines = tuple(reader.read(function))
    except RecursionError:
        lines = ()
        reader.refuse("a value that is nested too deeply")
    return Code(lines, tuple(reader.uses), tuple(reader.unwritten))


def read_origin(module: ModuleType, tree: ast.Module, name: str) -> Code:
    """Finds what is known to be impure of the expressions that give a name of a module its value."""
    reader = _Reader()
    reader.note_origin(module, tree, name)
    return Code((), tuple(reader.uses), ())


def parameters(declaration: Table | Topic, without: frozenset[str], **more: str | None) -> str:
    """Formats the given parameters, except for some, as text."""
    values = {f.name: getattr(declaration, f.name) for f in fields(declaration) if f.name not in without} | more
    return repr(sorted((name, str(value)) for name, value in values.items() if value is not None))


def digest(lines: Sequence[str]) -> str:
    """Hashes lines to twelve hex digits; names of our modules count as they were called first."""
    text = "\n".join(lines)
    for now, then in _THEN.items():
        text = text.replace(now, then)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def covering(topic: Topic) -> str:
    """Hashes what says which values of a record are covered; empty if none are."""
    return digest([repr(topic.schema), topic.unknown_fields]) if topic.covered else ""


class _Reader:
    """Writes down what a function depends on, each thing once, in the order in which it is met."""

    def __init__(self) -> None:
        self.uses: dict[Use, None] = {}
        self.unwritten: list[BadDeclaration] = []
        self._met: dict[int, int] = {}
        self._kept: list[object] = []  # an id is used again once its object is gone
        self._names: list[str] = []
        self._impure: set[str] = set()
        self._origins: set[tuple[str, str]] = set()

    def read(self, value: object) -> Iterator[str]:
        """Yields lines that change if the behaviour of the value may change."""
        if type(value) in _PLAIN:
            yield repr(value)
            return
        if id(value) in self._met:
            yield f"thing {self._met[id(value)]}"
            return
        if not isinstance(value, tuple | frozenset):  # equal ones may be one object or two: the interpreter's choice
            self._met[id(value)] = len(self._met)
            self._kept.append(value)
        kind = type(value)
        if isinstance(value, functools.partial):
            yield "partial"
            yield from self.read([value.func, list(value.args), sorted_by_name(value.keywords)])
        elif isinstance(value, classmethod | staticmethod):
            yield from self.read(value.__func__)
        elif isinstance(value, property):
            yield from self.read([value.fget, value.fset])
        elif isinstance(value, MethodType):
            yield from self.read([value.__func__, value.__self__])
        elif isinstance(value, enum.Enum):
            yield from self._read_code(value)
        elif isinstance(value, _PLAIN):
            yield repr(value)
            if is_of_ours(kind):
                yield from self.read([kind, attributes(value)])
        elif isinstance(value, Mapping | Set | Sequence) and (kind.__module__ in _HOLDING or is_of_ours(kind)):
            yield from self._read_items(value)
            if is_of_ours(kind):
                yield from self.read([kind, attributes(value)])
        else:
            yield from self._read_code(value)

    def _read_items(self, value: Any) -> Iterator[str]:
        if isinstance(value, range):
            yield repr(value)
        elif isinstance(value, bytearray | memoryview):
            shape = (getattr(value, "format", "B"), getattr(value, "shape", ()))
            yield f"{type(value).__name__} {shape} {bytes(value)!r}"
        elif isinstance(value, Mapping):
            for key in sorted(value, key=_in_order):
                yield from self.read([key, value[key]])
        elif isinstance(value, Set):
            yield from self.read(sorted(value, key=_in_order))
        else:
            yield f"{type(value).__name__} of {len(value)}"
            for item in value:
                yield from self.read(item)
        for name in ("default_factory", "maxlen", "typecode"):
            if (more := getattr(value, name, None)) is not None:
                yield from self.read(more)

    def _read_code(self, value: object) -> Iterator[str]:
        function = inspect.unwrap(value, stop=has_our_text) if callable(value) else value
        if isinstance(function, FunctionType):
            if has_our_text(function):
                yield from self._read_function(function)
            else:
                yield name_in_module(function)
                cells = [cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)]
                yield from self.read(cells) if cells else ()
            if more := {**(vars(function) if has_our_text(function) else {}), **dispatched(value)}:
                yield from self.read(sorted_by_name(more))
        elif isinstance(function, type):
            if is_of_ours(function):
                yield from self._read_class(function)
            else:
                yield name_in_module(function)
        elif isinstance(function, enum.Enum):
            yield f"{function} {function.value!r}" if isinstance(function.value, _PLAIN) else str(function)
            yield from self.read(function.value)
            yield from self.read(type(function))
        elif is_of_ours(type(function)):
            yield from self.read([type(function), attributes(function)])
        elif isinstance(function, ModuleType):
            yield f"module {function.__name__}"
            if is_of_ours(function):
                self._refuse_module(function)
        elif callable(function) and type(function).__module__ in _TYPING:
            yield name_in_module(function)
            if isinstance(function, GenericAlias) and function.__module__ == "builtins":
                yield from self.read(list(function.__args__))
        elif isinstance(function, Path) and (shown := project().shown(function)) != function:
            yield f"path {shown}"  # the same wherever the project lies
        elif inspect.isroutine(function):
            yield name_in_module(function)
            owner = getattr(function, "__self__", None)
            if not isinstance(owner, ModuleType | type | None):
                yield from self.read(owner)
        else:
            yield from self._read_value(function)

    def _read_value(self, value: object) -> Iterator[str]:
        """Yields lines for a value of a type of another package."""
        kind = name_in_module(type(value))
        if kind == "numpy.ndarray":
            array: Any = value
            yield f"{array.dtype!r} {array.shape}"
            yield from self.read(array.tolist() if array.dtype.hasobject else hashlib.sha256(array.tobytes()).digest())
        elif _TYPE_SAYS_ALL.fullmatch(kind):
            yield kind
        elif (_TEXT_SAYS_ALL.fullmatch(kind) or _is_number(value)) and not _ADDRESS.search(repr(value)):
            yield repr(value)
            if isinstance(value, re.Pattern) and len(repr(value.pattern)) > 200:  # where its text ends
                yield from self.read([value.pattern, value.flags])
            zone = getattr(value, "tzinfo", None)
            if type(zone).__module__ not in ("builtins", "datetime", "zoneinfo"):
                yield from self.read(zone)
        else:
            self.refuse(f"a {kind}")

    def refuse(self, what: str, hint: str = _WRITABLE) -> None:
        """Notes that the value of the name that is read is not written down in full."""
        used = self._names[-1] if self._names else "it"
        if used in self._impure:  # which says more
            return
        message = f"{used} is or holds {what}, which cannot be written down, so that a change of it would not be seen."
        self.unwritten.append(BadDeclaration(message, hint=hint))

    def _refuse_module(self, module: ModuleType) -> None:
        what = f"the module {module.__name__} of this repository"
        self.refuse(what, "Use the functions of the module by their names, which says what of it is used.")

    def _note(
        self, paths: Iterable[tuple[Dotted, int]], seen: Mapping[str, object], file: str, *, at_load: bool = False
    ) -> None:
        """Notes what is used of Python and of installed packages; of code that loading runs, only what is impure."""
        for path, line in paths:
            value, rest = _resolved(path, seen)
            if path[0] not in seen and hasattr(builtins, path[0]):
                name = ".".join(path)
            elif is_elsewhere(value):
                name = ".".join([name_of(value), *rest])
            else:
                if isinstance(value, ModuleType) and not at_load:
                    self._refuse_module(value)
                continue
            if is_impure(name):
                self._impure.add(".".join(path))
            elif at_load:
                continue
            self.uses[Use(name, file, line)] = None

    def note_origin(self, module: ModuleType, tree: ast.Module, name: str) -> None:
        """Notes what is impure of the expressions that give a name of the module its value."""
        if (module.__name__, name) in self._origins:
            return
        self._origins.add((module.__name__, name))
        for value in assigned(tree, name):
            before, used = len(self.uses), list(outer_paths(value))
            self._note(used, vars(module), module.__file__ or "", at_load=True)
            for path, _ in used:
                self.note_origin(module, tree, path[0])
            self._impure |= {name} if len(self.uses) > before else set()

    def _read_function(self, function: FunctionType) -> Iterator[str]:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        values = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells if is_filled(cell)}}
        text = parsed(function)
        tree = text and _with_imports(text, values)
        yield without_own_imports(tree, function.__module__) if tree else bytecode(function.__code__)
        if tree and function.__name__ == "<lambda>" and sum(isinstance(n, ast.Lambda) for n in nodes(tree)) > 1:
            yield bytecode(function.__code__)  # the text does not say which of them it is
        yield from self.read([function.__defaults__, function.__kwdefaults__])
        for outside in getattr(text.body[0], "decorator_list", ()) if text and tree is not text else ():
            self._note(outer_paths(outside), values, function.__code__.co_filename, at_load=True)
        # A local variable may have the name of something around the function, of the declared table for example.
        for local in (*function.__code__.co_varnames, *function.__code__.co_cellvars):
            values.pop(local, None)
        file = function.__code__.co_filename
        if tree:
            yield from self._read_names(tree, values, function.__module__, file)
        else:
            self._note(code_paths(function.__code__), values, file)
            for name in sorted(set(names_in(function.__code__)) & set(values)):
                yield from self.read(values[name])

    def _read_class(self, kind: type) -> Iterator[str]:
        tree = parsed(kind)
        if tree is None:
            yield name_in_module(kind)
            for base in kind.__bases__:
                yield from self.read(base)
            if isinstance(kind, enum.EnumMeta):
                yield from self.read({name: member.value for name, member in vars(kind)["_member_map_"].items()})
        else:
            left_out = TABLE_METHODS if issubclass(kind, Rule) else _NOT_OF_RECORDS if kind is Topic else None
            read = _without(tree, left_out) if left_out else tree
            yield without_own_imports(read, kind.__module__)
            module = inspect.getmodule(kind)
            yield from self._read_names(read, vars(module) if module else {}, kind.__module__, file_of(kind))
        for name, value in set_later(kind, tree):
            yield name
            yield from self.read(value)

    def _read_names(self, tree: ast.AST, known: Mapping[str, object], module: str, file: str) -> Iterator[str]:
        """Yields lines for the names in the code: those that it imports itself, then those around it."""
        seen = {**known, **dict(imported(tree, module))}
        self._note(outer_paths(tree), seen, file)
        self.uses |= {Use(SET_ORDER, file, line): None for line in sets_in_order(tree, seen)}
        for path in sorted(set(paths(tree))):
            value, _ = _resolved(path, seen)
            if value is not UNKNOWN and not isinstance(value, ModuleType):
                yield ".".join(path)
                if not isinstance(value, FunctionType | type) and module in sys.modules:
                    self.note_origin(sys.modules[module], module_tree(sys.modules[module]), path[0])
                self._names.append(".".join(path))
                yield from self.read(value)
                self._names.pop()


def _resolved(path: Dotted, seen: Mapping[str, object]) -> tuple[object, list[str]]:
    """Returns the value of a path as far as it goes through modules of this repository, and the rest of the path."""
    value, rest = seen.get(path[0], UNKNOWN), list(path[1:])
    while rest and isinstance(value, ModuleType) and is_of_ours(value):
        value = getattr(value, rest.pop(0), UNKNOWN)
    return value, rest


def _in_order(item: object) -> str:
    text = repr(item)
    return digest(tuple(_Reader().read(item))) if _ADDRESS.search(text) else text


def _with_imports(tree: ast.AST, known: Mapping[str, object]) -> ast.AST:
    """Removes `@table` from the function, and replaces Spark's names by the imports that they stand for."""
    function = tree.body[0] if isinstance(tree, ast.Module) else None
    if not isinstance(function, ast.FunctionDef):
        return tree
    read = (n for part in function.body for n in ast.walk(part) if isinstance(n, ast.Name))
    used = {name.id for name in read if isinstance(name.ctx, ast.Load)}
    names = {name: value for name in used if isinstance(value := known.get(name), SparkName)}
    imports = sorted((value.import_as(name) for name, value in names.items()), key=ast.unparse)
    others = [
        d for d in function.decorator_list if _found(d.func if isinstance(d, ast.Call) else d, known) is not table
    ]
    declared = copy.copy(function)
    declared.body, declared.decorator_list = [*imports, *function.body], others
    return ast.Module([declared], [])


def _found(name: ast.expr, known: Mapping[str, object]) -> object:
    return known.get(name.id) if isinstance(name, ast.Name) else None


def _without(tree: ast.AST, members: Collection[str]) -> ast.AST:
    """Returns a class without some of its members."""
    left = copy.deepcopy(tree)
    for node in ast.walk(left):
        if isinstance(node, ast.ClassDef):
            names = [getattr(getattr(part, "target", part), "id", getattr(part, "name", "")) for part in node.body]
            node.body = [part for part, name in zip(node.body, names, strict=True) if name not in members]
    return left


def _is_number(value: object) -> bool:
    """Whether it is a scalar of NumPy."""
    return any(name_in_module(kind) == "numpy.generic" for kind in type(value).__mro__)
