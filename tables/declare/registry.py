"""Loads every declaration under tables/, and resolves names, inputs and order."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument, BadDeclaration, Unproved, nearest
from twofold.infra.project.chosen_domains import chosen_domains
from twofold.infra.project.project import project
from twofold.infra.project.settings import Settings
from twofold.tables.declare.declaration_files import (
    QUARANTINE,
    RESERVED_DOMAIN,
    DeclarationFile,
    TopicFile,
    full_name_of,
    in_file,
    read_declaration,
    require_domain_name,
)
from twofold.tables.declare.inference import RECORD, Inference, complete, kept, plan_mistakes, redundant
from twofold.tables.declare.metadata_columns import copied_descriptions
from twofold.tables.declare.output import Output, output_mistakes
from twofold.tables.declare.parameter_checks import FACTS
from twofold.tables.declare.refusals.mistake_list import require_none, together_with
from twofold.tables.declare.refusals.refused_keys import NO_COLUMN, OPEN_KEY, TAKEN
from twofold.tables.declare.refusals.refused_names import UNKNOWN_INPUT
from twofold.tables.declare.refusals.refused_times import NEVER_CLOSES
from twofold.tables.declare.table import Strategy, Table
from twofold.tables.declare.topic import Topic

D = TypeVar("D", Topic, Table)
_log = logging.getLogger("twofold.registry")


@dataclass(frozen=True)
class Registry:
    """All declared topics and tables, by `domain.name`, consistent with each other.

    Attributes:
        faults: declaration, or domain, that cannot be loaded -> why; what reads it is among them.
        elsewhere: full names of what other domains declare, where this is of some alone.
        unproved: table whose function runs, but is not known to give one result -> why. Nothing new is made of it.
        descriptions: topic or table -> column -> what it holds, by its docstring or by the input whose values it has.
    """

    topics: Mapping[str, Topic]
    tables: Mapping[str, Table]
    faults: Mapping[str, BadDeclaration] = field(default_factory=dict)
    elsewhere: Collection[str] = ()
    unproved: Mapping[str, Unproved] = field(default_factory=dict)
    descriptions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(sorted({declaration.domain for declaration in self.declarations}))

    @property
    def not_run(self) -> tuple[str, ...]:
        """The domains that are left out, if these are the declarations of only some domains."""
        return tuple(sorted({name.partition(".")[0] for name in self.elsewhere}))

    @property
    def declarations(self) -> tuple[Topic | Table, ...]:
        return (*self.topics.values(), *self.tables.values())

    def restricted_to(self, domains: Collection[str]) -> Registry:
        """Restricts the declarations to these domains and those that they read; all, if none is named."""
        if not domains:
            return self
        kept = set(domains)
        for table in reversed(self.in_order()):  # each before those that it reads
            if table.domain in kept:
                kept |= {source.domain for source in self.upstream(table)}

        def within(full_name: str) -> bool:
            return full_name.partition(".")[0] in kept

        return Registry(
            {name: topic for name, topic in self.topics.items() if within(name)},
            {name: table for name, table in self.tables.items() if within(name)},
            {name: fault for name, fault in self.faults.items() if within(name)},
            [name for name in (*self.topics, *self.tables, *self.faults) if not within(name)],
            {name: fault for name, fault in self.unproved.items() if within(name)},
            self.descriptions,
        )

    def domain_topics(self, domain: str) -> list[Topic]:
        self.require_domain(domain)
        return [topic for topic in self.topics.values() if topic.domain == domain]

    def outputs(self) -> Iterator[tuple[Table, Output]]:
        """Yields the outputs of all tables, each with its table."""
        return ((table, output) for table in self.tables.values() for output in table.outputs)

    def left_out(self, names: Collection[str] = ()) -> dict[str, BadDeclaration]:
        """Returns the faults of declarations that `chosen` leaves out: of the named domains, or of all."""
        return {name: fault for name, fault in self.faults.items() if not names or name.partition(".")[0] in names}

    def require_sound(self, names: Collection[str] = ()) -> Registry:
        """Refuses declarations with a fault, of the named domains or of all.

        Raises:
            BadDeclaration: lists the files that cannot be loaded, and why.
        """
        faults = list(self.left_out(names).values())
        if len(faults) == 1:
            raise faults[0]
        if faults:
            raise BadDeclaration("\n".join(map(str, faults)))
        return self

    def require_domain(self, domain: str) -> str:
        if domain not in self.domains:
            for name, fault in self.faults.items():
                if name.partition(".")[0] == domain:
                    raise fault
            raise BadArgument(f"There is no domain {domain!r}.", hint=f"The domains are {', '.join(self.domains)}.")
        return domain

    def upstream(self, table: Table) -> list[Topic | Table]:
        """Lists the inputs of the table, in the order of its function's parameters."""
        declared: dict[str, Topic | Table] = {**self.topics, **self.tables}
        return [declared[name] for name in self.input_names(table) if name in declared]

    def topics_of(self, table: Table) -> list[Topic]:
        """Lists the topics among the inputs of the table, in the order of its function's parameters."""
        return [source for source in self.upstream(table) if isinstance(source, Topic)]

    def input_names(self, table: Table) -> list[str]:
        """Lists the full names of the table's inputs: `name` in its own domain takes precedence over `domain__name`."""
        names_of = {*self.topics, *self.tables, *self.faults}
        return [full_name_of(table.domain, name, names_of) for name in table.inputs]

    def above(self, table: Table) -> Registry:
        """Returns the topics and tables upstream of the table, directly or through others, and the table itself."""
        topics: dict[str, Topic] = {}
        tables: dict[str, Table] = {table.full_name: table}
        waiting = [table]
        while waiting:
            for source in self.upstream(waiting.pop()):
                if isinstance(source, Topic):
                    topics[source.full_name] = source
                elif source.full_name not in tables:
                    tables[source.full_name] = source
                    waiting.append(source)
        return Registry(topics, tables, descriptions=self.descriptions)

    def below(self, names: Collection[str]) -> list[Table]:
        """Lists the tables downstream of these, directly or through others, each after its inputs."""
        reached = set(names)
        tables = []
        for table in self.in_order():
            if any(source.full_name in reached for source in self.upstream(table)):
                reached.add(table.full_name)
                tables.append(table)
        return tables

    def strategy(self, table: Table) -> Strategy:
        """Returns how the stream maintains the table."""
        if any(isinstance(declaration, Table) for declaration in self.upstream(table)):
            return Strategy.TOUCHED
        if table.closes_at:
            return Strategy.STATEFUL
        if table.depends_within or len(table.inputs) > 1 or table.several:
            return Strategy.TOUCHED
        return Strategy.LATEST if table.sequence_by else Strategy.APPEND

    def in_order(self, domain: str | None = None) -> list[Table]:
        """Lists the tables, each after its inputs."""
        graph = {
            table.full_name: [i.full_name for i in self.upstream(table) if isinstance(i, Table)]
            for table in self.tables.values()
        }
        order = (self.tables[name] for name in TopologicalSorter(graph).static_order())
        return [table for table in order if domain in (None, table.domain)]

    def chosen(self, names: Sequence[str]) -> list[Table]:
        """Returns the tables of these names, all if none is named, each after its inputs.

        Args:
            names: full or bare names, or domains; a name that is both is the domain.

        Raises:
            BadArgument: an unknown table.
            BadDeclaration: a table that is named cannot be loaded.
        """
        groups = (self.in_order(name) if name in self.domains else [self.find_table(name)] for name in names)
        names_of = {table.full_name for tables in groups for table in tables} if names else set(self.tables)
        return [table for table in self.in_order() if table.full_name in names_of]

    def removed(self, names: Iterable[str]) -> list[str]:
        """Filters names to Delta tables that no file declares any more, without ledgers."""
        declared = {*self.tables, *self.topics, *self.faults, *self.elsewhere}
        kept = declared | {f"{name}{QUARANTINE}" for name in declared}
        return [name for name in names if name not in kept and name.split(".")[0] != RESERVED_DOMAIN]

    def find(self, name: str) -> Topic | Table:
        """Finds the table of that name, else the topic.

        Raises:
            BadArgument: there is neither; names similar tables.
        """
        try:
            return self.find_table(name)
        except BadArgument as no_table:
            try:
                return self.find_topic(name)
            except BadArgument:
                raise no_table from None

    def find_table(self, name: str) -> Table:
        """Finds the table of that full name, or of that bare name if it is unique.

        Raises:
            BadArgument: names similar ones.
            BadDeclaration: it cannot be loaded.
        """
        if name in self.domains and not any(full.partition(".")[2] == name for full in {**self.tables, **self.faults}):
            tables = ", ".join(table.full_name for table in self.in_order(name))
            raise BadArgument(f"{name!r} is a domain; expected one table.", hint=f"Name one of {tables}.")
        return _find(name, self.tables, self.faults, "table")

    def find_topic(self, name: str) -> Topic:
        """Finds the topic of that full name, or of that bare name if it is unique.

        Raises:
            BadArgument: names similar ones.
            BadDeclaration: it cannot be loaded.
        """
        return _find(name, self.topics, self.faults, "topic")


def load(folder: Path | None = None, *, quietly: bool = False) -> Registry:
    """Loads every topic and table from `<folder>/<domain>/<name>.py`, with the faults of the others.

    Args:
        folder: None: the platform's own, which a process reads once, and logs once what it leaves out.
        quietly: log nothing: the caller lists it.
    """
    if folder is not None:
        return _read(folder)
    if not quietly:
        _log_faults()
    return _own(project().tables)


def running(settings: Settings) -> Registry:
    """Returns the platform's own declarations, of the domains that it runs."""
    return load().restricted_to(chosen_domains(settings))


def running_domains(settings: Settings) -> list[str]:
    """Returns the domains for a command without names; empty: all declared ones.

    Raises:
        BadArgument: nothing of the domains that were chosen can be loaded.
    """
    registry = running(settings)
    if registry.not_run and not registry.domains:
        chosen = ", ".join(chosen_domains(settings))
        raise BadArgument(
            f"This platform runs {chosen}, of which no declaration can be loaded.",
            hint=f"`{COMMAND} up DOMAIN` runs another domain; not run: {', '.join(registry.not_run)}.",
        )
    return list(registry.domains) if registry.not_run else []


@functools.cache
def _own(folder: Path) -> Registry:
    return _read(folder)


@functools.cache
def _log_faults() -> None:
    for name, fault in _own(project().tables).faults.items():
        _log.error("left out declaration=%s error=%s", name, fault.message)


def _read(folder: Path) -> Registry:
    topics: dict[str, Topic] = {}
    drafts: dict[str, DeclarationFile] = {}
    faults: dict[str, BadDeclaration] = {}
    descriptions: dict[str, Mapping[str, str]] = {}
    for domain in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(("_", "."))):
        try:
            require_domain_name(domain)
        except BadDeclaration as fault:
            faults[domain.name] = fault
            continue
        for path in sorted(p for p in domain.glob("*.py") if p.name != "__init__.py"):
            try:
                declaration = read_declaration(path)
            except BadDeclaration as fault:
                faults[f"{domain.name}.{path.stem}"] = fault
                continue
            if isinstance(declaration, TopicFile):
                topics[declaration.topic.full_name] = declaration.topic
                descriptions[declaration.topic.full_name] = declaration.descriptions
            else:
                drafts[declaration.full_name] = declaration
    _leave_out_unfit(topics, faults, folder)
    return _completed(topics, drafts, faults, descriptions)


def _leave_out_unfit(topics: dict[str, Topic], faults: dict[str, BadDeclaration], folder: Path) -> None:
    """Removes each topic that others of its origin do not go with, and records the fault."""
    for find in {topic.origin.mistakes for topic in topics.values()} - {""}:
        for name, mistake in resolve_name(find)([n for n, topic in topics.items() if topic.origin.mistakes == find]):
            try:
                with in_file(folder / topics[name].domain / f"{topics.pop(name).name}.py"):
                    raise mistake
            except BadDeclaration as fault:
                faults[name] = fault


def _completed(
    topics: Mapping[str, Topic],
    drafts: Mapping[str, DeclarationFile],
    faults: dict[str, BadDeclaration],
    descriptions: dict[str, Mapping[str, str]],
) -> Registry:
    """Completes the tables of the drafts, each after its inputs; a fault of one is a fault of those that read it."""
    declared_names = {*topics, *drafts, *faults}
    columns: dict[str, Sequence[str] | None] = {name: tuple(topic.columns) for name, topic in topics.items()}
    order, circular = _in_order(drafts, declared_names)
    faults |= circular
    tables: dict[str, Table] = {}
    unproved: dict[str, Unproved] = {}
    for file in order:
        try:
            with in_file(file.path), together_with(file.mistakes):
                read = file.reads(declared_names)
                _check_inputs(file, read, {*topics, *drafts}, faults)
                sources: dict[str, Topic | Table] = {n: topics.get(full) or tables[full] for n, full in read.items()}
                seen = {name: columns[full] for name, full in read.items()}
                if "lineage_columns" in file.draft.given:
                    seen |= {n: [*source.columns, RECORD] for n, source in sources.items() if isinstance(source, Topic)}
                inference = kept(file, sources, seen)
                with together_with(plan_mistakes(file.draft.derive, inference, on_stream=False)):
                    table = _table(file, seen, inference)
                    _check(table, inference, Registry(topics, {**tables, table.full_name: table}))
        except Unproved as fault:
            unproved[file.full_name] = fault
        except BadDeclaration as fault:
            faults[file.full_name] = fault
            continue
        tables[file.full_name], columns[file.full_name] = table, inference.columns
        copied = copied_descriptions(inference.copied, {name: descriptions[full] for name, full in read.items()})
        descriptions[file.full_name] = {**copied, **table.columns}
    made = {name: tables[name] for name in drafts if name in tables}
    return Registry(topics, made, faults, unproved=unproved, descriptions=descriptions)


def _in_order(
    drafts: Mapping[str, DeclarationFile], known: Collection[str]
) -> tuple[list[DeclarationFile], dict[str, BadDeclaration]]:
    """Orders files, each after those that it reads; returns the faults of those that read each other in a circle."""
    left, faults = dict(drafts), dict[str, BadDeclaration]()
    while True:
        graph = {name: [read for read in file.reads(known).values() if read in left] for name, file in left.items()}
        try:
            return [left[name] for name in TopologicalSorter(graph).static_order()], faults
        except CycleError as error:
            message = f"tables read each other in a circle: {' -> '.join(error.args[1])}."
            for name in dict.fromkeys(error.args[1]):
                try:
                    with in_file(left.pop(name).path):
                        raise BadDeclaration(message, hint="Take one of these inputs away.") from None
                except BadDeclaration as fault:
                    faults[name] = fault


def _table(file: DeclarationFile, seen: Mapping[str, Sequence[str] | None], inference: Inference) -> Table:
    """Builds the table, with parameters inferred if the file does not give them; also returns the inference."""
    draft = file.draft
    parameters = complete(draft, inference, seen)
    inferred = tuple(name for name, value in parameters.items() if name not in draft.given and value is not None)
    follows: dict[str, Any] = {
        **{name: getattr(inference, name) for name in FACTS},
        "inferred": inferred,
        "redundant": redundant(draft, inference, seen),
        "result_columns": inference.columns or (),
    }
    return Table(derive=draft.derive, **parameters, **follows, **file.binding)


def _check_inputs(
    file: DeclarationFile, read: Mapping[str, str], declared: Collection[str], faults: Mapping[str, BadDeclaration]
) -> None:
    domain = file.path.parent.name
    for name, full_name in read.items():
        if fault := faults.get(full_name):
            raise BadDeclaration(f"it reads {full_name}, which cannot be loaded.", hint=fault.message)
        if full_name not in declared:
            names_of = sorted(full.partition(".")[2] for full in declared if full.startswith(f"{domain}."))
            known = f"The domain has {', '.join(names_of)}; one of another domain is written domain__name."
            raise UNKNOWN_INPUT.error(
                function=file.draft.derive.__name__,
                name=name,
                domain=domain,
                near_names=nearest(name, names_of, known),
            )


def _check(table: Table, inference: Inference, registry: Registry) -> None:
    if registry.strategy(table).follows_changes and table.closes_at:
        raise NEVER_CLOSES.error()
    if table.closes_at:
        require_none(plan_mistakes(table.derive, inference, on_stream=True))
    _check_records(table, registry)
    topics = {topic.name for topic in registry.domain_topics(table.domain)}
    require_none([*output_mistakes(table.outputs, table.name, inference.columns, table.closes_at, topics)])
    for topic in registry.topics_of(table):
        named = zip(table.recompute_by, table.scope_in(topic), strict=True)
        renamed = [text for column, text in named if text not in (column, None) and text.isidentifier()]
        if missing := [name for name in renamed if name not in topic.columns]:
            known = ", ".join(topic.columns)
            raise NO_COLUMN.error(columns=", ".join(missing), topic=topic.full_name, known=known)
    if registry.strategy(table) is Strategy.APPEND and inference.key_lacks is not None:
        columns = ", ".join(inference.key_lacks) or "what identifies a row"
        raise OPEN_KEY.error(key=list(table.primary_key), columns=columns)


def _check_records(table: Table, registry: Registry) -> None:
    taken = [topic.full_name for topic in registry.topics_of(table) if RECORD in topic.columns]
    if table.lineage_columns and taken:
        raise TAKEN.error(columns=list(table.lineage_columns), topic=taken[0], record=RECORD)


def _find(name: str, known: Mapping[str, D], faults: Mapping[str, BadDeclaration], what: str) -> D:
    full_names = [*known, *faults]
    meant = [name] if name in full_names else [full for full in full_names if full.partition(".")[2] == name]
    if len(meant) > 1:
        raise BadArgument(f"The {what} {name!r} is in more than one domain.", hint=f"Write {' or '.join(meant)}.")
    if meant:
        if fault := faults.get(meant[0]):
            raise fault
        return known[meant[0]]
    names = [*known, *(full.split(".", 1)[1] for full in known)]
    hint = nearest(name, names, f"There are {', '.join(known)}.")
    raise BadArgument(f"There is no {what} {name!r}.", hint=hint)
