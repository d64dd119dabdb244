"""Finds every declaration under tables/ and holds them together: names, inputs, order."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from infra.errors import BadArgument, BadDeclaration, TwofoldError
from infra.settings import ROOT
from tables.declaration import BOUND, NAME, Strategy, Table, Topic

FOLDER = ROOT / "tables"
RESERVED_DOMAINS = frozenset({"ledger"})
QUARANTINE = "_quarantine"
RECORD = "record"
"""The column that tells a declaration with `records` where an event stands in the log."""
D = TypeVar("D", Topic, Table)


@dataclass(frozen=True)
class Registry:
    """All declared topics and tables, by `domain.name`, consistent with each other."""

    topics: Mapping[str, Topic]
    tables: Mapping[str, Table]

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(sorted({declaration.domain for declaration in self.declarations}))

    @property
    def declarations(self) -> tuple[Topic | Table, ...]:
        return (*self.topics.values(), *self.tables.values())

    def domain_topics(self, domain: str) -> list[Topic]:
        self.require_domain(domain)
        return [topic for topic in self.topics.values() if topic.domain == domain]

    def require_domain(self, domain: str) -> str:
        if domain not in self.domains:
            raise BadArgument(f"There is no domain {domain!r}.", hint=f"The domains are {', '.join(self.domains)}.")
        return domain

    def upstream(self, table: Table) -> list[Topic | Table]:
        """What the table reads, in the order of its function's parameters."""
        found = (_input(table, name, self.topics, self.tables) for name in table.inputs)
        return [declaration for declaration in found if declaration is not None]

    def strategy(self, table: Table) -> Strategy:
        """How the stream maintains the table."""
        if any(isinstance(declaration, Table) for declaration in self.upstream(table)):
            return Strategy.TOUCHED
        if table.closes_at:
            return Strategy.STATEFUL
        if table.lookback or len(table.inputs) > 1:
            return Strategy.TOUCHED
        return Strategy.LATEST if table.latest_by else Strategy.APPEND

    def in_order(self, domain: str | None = None) -> list[Table]:
        """Tables, each after the tables that it reads."""
        graph = {
            table.full_name: [i.full_name for i in self.upstream(table) if isinstance(i, Table)]
            for table in self.tables.values()
        }
        order = (self.tables[name] for name in TopologicalSorter(graph).static_order())
        return [table for table in order if domain in (None, table.domain)]

    def chosen(self, names: Sequence[str]) -> list[Table]:
        """The tables of these names, all where none is named; each after the tables that it reads.

        Args:
            names: full or bare names, or domains; a name that is both is the domain.

        Raises:
            BadArgument: an unknown table.
        """
        found = (self.in_order(name) if name in self.domains else [self.find_table(name)] for name in names)
        wanted = {table.full_name for tables in found for table in tables} if names else set(self.tables)
        return [table for table in self.in_order() if table.full_name in wanted]

    def removed(self, names: Iterable[str]) -> list[str]:
        """Which of these Delta tables, ledgers apart, no file declares any more."""
        kept = {*self.tables, *self.topics, *(f"{topic}{QUARANTINE}" for topic in self.topics)}
        return [name for name in names if name not in kept and name.split(".")[0] not in RESERVED_DOMAINS]

    def find_table(self, name: str) -> Table:
        """The table of that full name, or of that bare name where it is unique.

        Raises:
            BadArgument: names what is near.
        """
        return _find(name, self.tables, "table")

    def find_topic(self, name: str) -> Topic:
        """The topic of that full name, or of that bare name where it is unique.

        Raises:
            BadArgument: names what is near.
        """
        return _find(name, self.topics, "topic")


def load(folder: Path = FOLDER, *, without: Collection[Path] = ()) -> Registry:
    """Load every `<folder>/<domain>/<name>.py`, except the files and folders in `without`.

    Raises:
        BadDeclaration: names the file, what was expected, what came, what to do.
    """
    topics: dict[str, Topic] = {}
    tables: dict[str, Table] = {}
    for path in _files(folder, without):
        declaration = _declaration(path)
        known: dict[str, Topic] | dict[str, Table] = topics if isinstance(declaration, Topic) else tables
        known[declaration.full_name] = declaration  # type: ignore[assignment]
    registry = Registry(topics, tables)
    for table in tables.values():
        with _in_file(folder / table.domain / f"{table.name}.py"):
            _check_inputs(table, registry)
    _check_order(registry, folder)
    return registry


def load_sound(folder: Path = FOLDER) -> tuple[Registry, list[BadDeclaration]]:
    """Every topic and table without a fault, and the faults of the other files, the first of each."""
    faults: dict[Path, BadDeclaration] = {}
    while True:
        try:
            return load(folder, without=faults), list(faults.values())
        except BadDeclaration as fault:
            path = Path(str(fault.facts.get("file", folder)))
            if path == folder:
                raise
            faults[path] = fault


def _files(folder: Path, without: Collection[Path]) -> Iterator[Path]:
    domains = (p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(("_", ".")))
    for domain in sorted(p for p in domains if p not in without):
        with _in_file(domain):
            if not NAME.match(domain.name) or domain.name in RESERVED_DOMAINS:
                raise BadDeclaration(
                    f"{domain.name!r} cannot name a domain.", hint="Use lower-case letters, digits and _; not 'ledger'."
                )
        yield from sorted(p for p in domain.glob("*.py") if p.name != "__init__.py" and p not in without)


def _declaration(path: Path) -> Topic | Table:
    with _in_file(path):
        if not NAME.match(path.stem) or path.stem.endswith(QUARANTINE):
            raise BadDeclaration(
                f"{path.stem!r} cannot name a topic or a table.",
                hint=f"Use lower-case letters, digits and _; the ending {QUARANTINE} is taken.",
            )
        module = _module(path)
        found = [(n, v) for n, v in vars(module).items() if isinstance(v, Topic | Table)]
        expected = [value for name, value in found if name == ("TOPIC" if isinstance(value, Topic) else "TABLE")]
        if len(found) != 1 or len(expected) != 1:
            names = ", ".join(f"{name} (a {type(value).__name__})" for name, value in found) or "none"
            raise BadDeclaration(
                f"expected exactly one declaration, a Topic named TOPIC or a Table named TABLE; found {names}.",
                hint="One file declares one topic or one table.",
            )
        description = (module.__doc__ or "").strip().split("\n")[0]
        if not description:
            raise BadDeclaration(
                "the file has no docstring.", hint="Its first line describes the data to the people who use it."
            )
        _check_heavy_imports(path)
        given = [name for name in sorted(BOUND) if getattr(expected[0], name)]
        if given:
            raise BadDeclaration(
                f"{given[0]} is given as a parameter; expected it from the file.",
                hint="The domain is the folder, the name is the file's, the description is its docstring.",
            )
        return replace(expected[0], domain=path.parent.name, name=path.stem, description=description)


def _module(path: Path) -> ModuleType:
    name = f"tables.{path.parent.name}.{path.stem}" if path.parent.parent == FOLDER else f"declared.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadDeclaration("the file cannot be loaded as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _check_heavy_imports(path: Path) -> None:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        heavy = [m for m in modules if m.split(".")[0] in ("pyspark", "airflow", "delta", "pandas")]
        if heavy:
            raise BadDeclaration(
                f"line {node.lineno} imports {heavy[0]} when the file is loaded; "
                "declarations are loaded often and fast.",
                hint="Import it inside the function, and under `if TYPE_CHECKING:` for the types.",
            )


def _input(table: Table, name: str, topics: Mapping[str, Topic], tables: Mapping[str, Table]) -> Topic | Table | None:
    own = f"{table.domain}.{name}"
    if own in tables and own in topics:
        return None
    if own in topics:
        return topics[own]
    if own in tables:
        return tables[own]
    other = name.replace("__", ".", 1)
    return topics.get(other) or tables.get(other)


def _check_inputs(table: Table, registry: Registry) -> None:
    for name in table.inputs:
        if _input(table, name, registry.topics, registry.tables) is None:
            known = sorted({d.name for d in registry.declarations if d.domain == table.domain})
            near = difflib.get_close_matches(name, known, n=1)
            raise BadDeclaration(
                f"{table.derive.__name__} reads {name!r}, which is no topic or table of the domain {table.domain}.",
                hint=f"Did you mean {near[0]!r}?"
                if near
                else f"The domain has {', '.join(known)}; one of another domain is written domain__name.",
            )
    if table.full_name in registry.topics:
        raise BadDeclaration("a topic and a table have the same name.")
    if registry.strategy(table).follows_changes and table.closes_at:
        raise BadDeclaration(
            "closes_at: a table that reads tables never closes a row, since theirs can be corrected.",
            hint="Leave closes_at away; the rows follow every correction.",
        )
    _check_records(table, registry)
    for declaration in registry.upstream(table):
        columns = declaration.types if isinstance(declaration, Topic) else None
        if columns is not None and not set(table.recompute_by) & set(columns) and table.lookback is None:
            raise BadDeclaration(
                f"recompute_by={list(table.recompute_by)}: none of these is a column of {declaration.full_name}, "
                "and there is no lookback: any of its rows would touch the whole table.",
                hint="Carry the column through from the input, or declare lookback.",
            )


def _check_records(table: Table, registry: Registry) -> None:
    topics = [source for source in registry.upstream(table) if isinstance(source, Topic)]
    taken = [topic.full_name for topic in topics if RECORD in topic.columns]
    if table.records and taken:
        raise BadDeclaration(
            f"records={list(table.records)}: {taken[0]} has a column {RECORD!r} of its own.",
            hint="Rename the column of the topic.",
        )


def _check_order(registry: Registry, folder: Path) -> None:
    try:
        registry.in_order()
    except CycleError as error:
        raise BadDeclaration(
            f"{folder}: tables read each other in a circle: {' -> '.join(error.args[1])}.",
            hint="Take one of these inputs away.",
            file=str(folder / f"{error.args[1][0].replace('.', '/')}.py"),
        ) from None


class _in_file:
    """Names the file in every error that leaves the block."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TwofoldError):
            raise BadDeclaration(f"{self._shown()}: {error.message}", hint=error.hint, file=str(self.path)) from error
        if isinstance(error, SyntaxError):
            raise BadDeclaration(f"{self._shown()}, line {error.lineno}: {error.msg}.", file=str(self.path)) from error
        if isinstance(error, Exception):
            raise BadDeclaration(
                f"{self._shown()}: loading it raised {type(error).__name__}: {error}",
                hint="A declaration takes the parameters that docs/reference/declarations.md lists.",
                file=str(self.path),
            ) from error

    def _shown(self) -> Path:
        return self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path


def _find(name: str, known: Mapping[str, D], what: str) -> D:
    if name in known:
        return known[name]
    bare = [full for full in known if full.split(".", 1)[1] == name]
    if len(bare) == 1:
        return known[bare[0]]
    if bare:
        raise BadArgument(f"The {what} {name!r} is in more than one domain.", hint=f"Write {' or '.join(bare)}.")
    near = difflib.get_close_matches(name, [*known, *(full.split(".", 1)[1] for full in known)], n=1)
    raise BadArgument(
        f"There is no {what} {name!r}.", hint=f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
    )
