"""Reads one file under a domain's folder: the topic or the table that it declares, and its mistakes."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from twofold.infra import DOCS
from twofold.infra.errors import BadDeclaration, TwofoldError, Unproved
from twofold.infra.extras import missing_tool
from twofold.infra.project.project import project
from twofold.tables.declare import metadata_columns
from twofold.tables.declare.code_fingerprint import Code, read_code, read_origin
from twofold.tables.declare.metadata_columns import described_columns
from twofold.tables.declare.parameter_checks import BOUND, NAME, require_columns, require_known
from twofold.tables.declare.refusals.code_mistakes import purity_mistakes
from twofold.tables.declare.refusals.mistake_list import found_by, require_none, split
from twofold.tables.declare.refusals.refused_names import HEAVY_IMPORT
from twofold.tables.declare.table import Draft
from twofold.tables.declare.topic import DeviceClock, Topic

DECLARED = "twofold.declared"
"""The package whose modules are the declarations of the project."""
RESERVED_DOMAIN = "ledger"
QUARANTINE = "_quarantine"
_PARAMETERS = {kind.__name__: [f.name for f in fields(kind) if f.name not in BOUND] for kind in (Topic, DeviceClock)}


class in_file:
    """Names the file in every error that leaves the block."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if missing := missing_tool(error):
            error = missing
        if isinstance(error, TwofoldError):
            facts = {**error.facts, "file": str(self.path)}
            kind = Unproved if isinstance(error, Unproved) else BadDeclaration
            raise kind(f"{self._shown()}: {error.message}", hint=error.hint, **facts) from error
        if isinstance(error, SyntaxError):
            raise BadDeclaration(f"{self._shown()}, line {error.lineno}: {error.msg}.", file=str(self.path)) from error
        unknown = re.search(r"^(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
        if isinstance(error, TypeError) and unknown and unknown[1] in _PARAMETERS:
            with self:
                require_known([unknown[2]], _PARAMETERS[unknown[1]], unknown[1])
        if isinstance(error, Exception):
            raise BadDeclaration(
                f"{self._shown()}: loading it raised {type(error).__name__}: {error}",
                hint=f"A declaration takes the parameters that {DOCS}/reference/declarations.md lists.",
                file=str(self.path),
            ) from error

    def _shown(self) -> Path:
        return project().shown(self.path)


@dataclass(frozen=True)
class TopicFile:
    """A file that declares a topic, with what its columns hold."""

    topic: Topic
    descriptions: Mapping[str, str]


@dataclass(frozen=True)
class DeclarationFile:
    """A file that declares a table, before its inputs are known.

    Attributes:
        code: what its function does, and uses.
        binding: domain, name and description.
        mistakes: found without the inputs.
    """

    path: Path
    draft: Draft
    code: Code
    binding: Mapping[str, Any]
    mistakes: Sequence[BadDeclaration] = ()

    @property
    def full_name(self) -> str:
        return f"{self.path.parent.name}.{self.path.stem}"

    def reads(self, known: Collection[str]) -> dict[str, str]:
        """Maps each parameter of the function to the full name of its input."""
        return {name: full_name_of(self.path.parent.name, name, known) for name in self.draft.inputs}


def require_domain_name(folder: Path) -> None:
    with in_file(folder):
        if not NAME.match(folder.name) or folder.name == RESERVED_DOMAIN:
            raise BadDeclaration(
                f"{folder.name!r} cannot name a domain.",
                hint=f"Use lower-case letters, digits and _; not {RESERVED_DOMAIN!r}.",
            )


def read_declaration(path: Path) -> TopicFile | DeclarationFile:
    with in_file(path):
        if not NAME.match(path.stem) or path.stem.endswith(QUARANTINE):
            raise BadDeclaration(
                f"{path.stem!r} cannot name a topic or a table.",
                hint=f"Use lower-case letters, digits and _; the ending {QUARANTINE} is taken.",
            )
        tree = ast.parse(path.read_bytes(), path)
        module = _module(path, tree)
        declared = [(n, v) for n, v in vars(module).items() if isinstance(v, Topic | Draft)]
        expected = [v for n, v in declared if n == ("TOPIC" if isinstance(v, Topic) else v.derive.__name__)]
        if len(declared) != 1 or len(expected) != 1:
            kinds = [(name, "a Topic" if isinstance(value, Topic) else "a table") for name, value in declared]
            names = ", ".join(f"{name} ({kind})" for name, kind in kinds) or "none"
            raise BadDeclaration(
                f"expected exactly one declaration, a Topic named TOPIC or a function under @table; found {names}.",
                hint="One file declares one topic or one table.",
            )
        docstring = inspect.cleandoc(module.__doc__ or "")
        description = docstring.split("\n")[0]
        mistakes = found_by(
            lambda: _require_description(description),
            lambda: _check_heavy_imports(tree),
            lambda: _require_unbound(expected[0]),
        )
        if isinstance(expected[0], Draft):
            code, vouched = read_code(expected[0].derive), expected[0].given.get("pure", ())
        else:
            code, vouched = read_origin(module, tree, "TOPIC"), ()
        mistakes += [*code.unwritten, *purity_mistakes(code.uses, vouched, path)]
        binding: dict[str, Any] = {"domain": path.parent.name, "name": path.stem, "description": description}
        if isinstance(expected[0], Draft):
            return DeclarationFile(path, expected[0], code, binding, [*mistakes, *expected[0].mistakes])
        topic, described = expected[0], described_columns(docstring)
        mistakes += found_by(partial(require_columns, "a line of its docstring", [*described], topic.columns))
        require_none(mistakes)
        topic = replace(topic, **binding)
        for complete in {kind.completed for kind in topic.covered.values()}:
            topic = resolve_name(complete)(topic)
        return TopicFile(topic, {**_descriptions_of_platform(topic), **described})


def _descriptions_of_platform(topic: Topic) -> dict[str, str]:
    """Describes the columns of events that the platform adds, and those that every topic of this kind has."""
    texts = {
        **metadata_columns.OF_EVENTS,
        **(metadata_columns.OF_COMPACTED if topic.compacted else {}),
        **topic.origin.columns,
    }
    if topic.append_time:
        texts[topic.append_time] = texts[metadata_columns.APPENDED_AT]
    return {column: text for column, text in texts.items() if column.startswith("_") or column in topic.columns}


def _require_description(description: str) -> None:
    if not description:
        raise BadDeclaration(
            "the file has no docstring.", hint="Its first line describes the data to the people who use it."
        )


def _require_unbound(declared: Topic | Draft) -> None:
    given = [name for name in sorted(BOUND) if getattr(declared, name, None)]
    if given:
        raise BadDeclaration(
            f"{given[0]} is given as a parameter; expected it from the file.",
            hint="The domain is the folder, the name is the file's, the description is its docstring.",
        )


def _module(path: Path, tree: ast.Module) -> ModuleType:
    """Executes the source itself: cached bytecode may be stale if the file was edited within the second."""
    is_of_project = path.parent.parent == project().tables
    name = f"{DECLARED}.{path.parent.name}.{path.stem}" if is_of_project else f"declared.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise BadDeclaration("the file cannot be loaded as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(tree, path, "exec"), vars(module))
    return module


def _check_heavy_imports(tree: ast.Module) -> None:
    for node in tree.body:
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        heavy = [m for m in modules if m.split(".")[0] in ("pyspark", "airflow", "delta", "pandas")]
        if heavy:
            raise HEAVY_IMPORT.error(line=node.lineno, module=heavy[0])


def mistakes_in(fault: BadDeclaration) -> list[BadDeclaration]:
    """Splits the fault of a file into the mistakes that were found together."""
    place, file = fault.message.partition(": ")[0], fault.facts.get("file")
    first, *others = split(fault)
    return [first, *(BadDeclaration(f"{place}: {m.message}", hint=m.hint, file=file) for m in others)]


def full_name_of(domain: str, name: str, known: Collection[str]) -> str:
    """Returns the full name of a parameter's input: `name` in its own domain takes precedence over `domain__name`."""
    own = f"{domain}.{name}"
    return own if own in known else name.replace("__", ".", 1)
