"""Writes a new declaration with its test."""

from __future__ import annotations

import json
import keyword
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeGuard

import typer
from rich.markup import escape

from twofold.cli.console import make_table, out
from twofold.cli.parsing import require_name
from twofold.cli.writing.template_files import template
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.infra.project.project import project

if TYPE_CHECKING:
    from twofold.cli.writing.sample import Sample
    from twofold.tables.declare.record_fields import Field
    from twofold.tables.declare.registry import Registry
    from twofold.tables.declare.table import Table
    from twofold.tables.declare.topic import Topic

app = typer.Typer(name="new", no_args_is_help=True, help="Write a new declaration, with its test.")


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files of a new topic or table."""

    declaration: Path
    test: Path


@app.callback()
def new() -> None:
    """Write a new declaration, with its test."""


@app.command()
def domain(name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and _.")]) -> None:
    """Make the folder tables/NAME of a new domain."""
    out.print(f"Wrote {write_domain(name, root=project().sources)}.", soft_wrap=True)
    out.print(
        f"[dim]Next:[/] {COMMAND} new topic NAME --domain {name} --from SAMPLE, a file with one JSON record per line. "
        f"`{COMMAND} up {name}` runs this domain alone.",
        soft_wrap=True,
    )


@app.command()
def topic(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and _.")],
    domain: Annotated[str, typer.Option(help="The folder under tables/.")],
    sample: Annotated[Path, typer.Option("--from", metavar="FILE", help="A file with one JSON record per line.")],
    event_time: Annotated[str | None, typer.Option(help="The column with the time at which it happened.")] = None,
    dedup_keys: Annotated[str | None, typer.Option(help="Columns in which no two records agree: id,kind.")] = None,
    message_key: Annotated[str | None, typer.Option(help="The column that producers use as the record key.")] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic.")] = 3,
    depth: Annotated[int, typer.Option(min=1, help="Objects within so many others, and below, become json.")] = 2,
) -> None:
    """Write tables/DOMAIN/NAME.py from a sample, and tests/test_NAME.py.

    Types, nullability, event time and deduplication keys are inferred from the sample and shown. Objects become
    structs, maps if their keys vary, or json if they are within two others or have more than 20 fields; --depth
    names the fields of more. Columns within a struct are named by their path: meta.sent_at. If records have other types
    or nulls than the sample, edit the file.
    """
    from twofold.cli.writing.sample import read_sample

    if not sample.is_file():
        raise BadArgument(f"--from={sample}: there is no such file.", hint="Expected one JSON record per line.")
    with sample.open(encoding="utf-8") as lines:
        read = read_sample(lines, depth)
    columns = dedup_keys.split(",") if dedup_keys else None
    written, chosen = write_topic(
        name,
        read,
        domain=domain,
        event_time=event_time,
        dedup_keys=columns,
        message_key=message_key,
        partitions=partitions,
        root=project().sources,
    )
    out.print(
        make_table(f"{read.records:,} records", ["column", "type"], [(c, escape(t)) for c, t in read.schema.items()])
    )
    for note in read.notes:
        out.print(f"[yellow]![/] {escape(note)}", soft_wrap=True)
    for what, value, others in chosen:
        more = f"  [dim]or {escape('; '.join(others))}: --{what.replace('_', '-')}[/]" if others else ""
        out.print(f"{what}: {escape(value)}{more}", soft_wrap=True)
    out.print(f"Wrote {written.declaration} and {written.test}.", soft_wrap=True)
    out.print(f"[dim]Next:[/] {COMMAND} new table NAME --domain {domain} --input {name}")


@app.command()
def table(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and _.")],
    domain: Annotated[str, typer.Option(help="The folder under tables/.")],
    reads: Annotated[
        str | None, typer.Option("--input", help="The topic or table that it reads. Default: the domain's first topic.")
    ] = None,
) -> None:
    """Write a working tables/DOMAIN/NAME.py, and tests/test_NAME.py."""
    written = write_table(name, domain=domain, reads=reads, root=project().sources)
    out.print(f"Wrote {written.declaration} and {written.test}.", soft_wrap=True)
    out.print(
        f"[dim]Next:[/] edit both; {COMMAND} check {domain}.{name} finds mistakes, {COMMAND} try {domain}.{name} shows "
        f"rows, pytest {project().shown(written.test)} tests it, {COMMAND} up makes it.",
        soft_wrap=True,
    )


def description_lines(columns: Iterable[str]) -> str:
    """Writes the lines of a docstring in which the author says what each column holds."""
    return "\n".join(f"{column}: what it is, and in which unit" for column in columns)


def write_domain(name: str, *, root: Path) -> Path:
    """Creates the folder of a domain below `root`.

    Raises:
        BadArgument: the name cannot be used, or there is such a folder.
    """
    from twofold.tables.declare.declaration_files import RESERVED_DOMAIN
    from twofold.tables.declare.parameter_checks import NAME

    if not NAME.match(name) or keyword.iskeyword(name) or name == RESERVED_DOMAIN:
        raise BadArgument(
            f"{name!r} cannot name a domain.", hint="Use lower-case letters, digits and _; 'ledger' is reserved."
        )
    path = root / "tables" / name / "__init__.py"
    if path.parent.exists():
        raise BadArgument(f"{path.parent} exists already.", hint="Choose another name.")
    path.parent.mkdir()
    path.write_text(f'"""What the domain {name} is about, in one line."""\n', encoding="utf-8")
    return path


def write_topic(
    name: str,
    sample: Sample,
    *,
    domain: str,
    root: Path,
    event_time: str | None = None,
    dedup_keys: Sequence[str] | None = None,
    message_key: str | None = None,
    partitions: int = 3,
) -> tuple[Written, list[tuple[str, str, Sequence[str]]]]:
    """Writes the two files of a topic below `root`.

    Returns:
        The files, and the choices: parameter, value, alternatives.

    Raises:
        BadArgument: the name cannot be used or is taken, there is no such domain, no column can be the event time or
            identify records, or a file exists already.
    """
    from twofold.tables.declare.registry import load

    if not (root / "tables" / domain).is_dir():
        raise BadArgument(f"There is no domain {domain!r}.", hint=f"`{COMMAND} new domain {domain}` makes it.")
    require_name(name, domain, load(root / "tables"))
    times, identities = _times_and_identities(sample, event_time, dedup_keys)
    chosen_key = message_key or identities[0][0]
    paths = (times[0], *identities[0], chosen_key)
    for path in paths:
        sample.require(path)
    if times[0] not in sample.times:
        raise BadArgument(
            f"--event-time={times[0]}: expected a time with an offset that every record has.",
            hint=f"In the sample that is {' or '.join(sample.times) or 'none'}.",
        )
    schema, columns = sample.with_columns(paths)
    text = template("topic.py").substitute(
        name=name,
        imports="Topic, field" if any(map(_lies_within, schema.values())) else "Topic",
        descriptions=description_lines(schema),
        schema="\n".join(f"        {_quoted(column)}: {_written(kind)}," for column, kind in schema.items()),
        partitions=partitions,
        event_time=columns[times[0]],
        key=columns[chosen_key],
        dedup_keys=", ".join(_quoted(columns[path]) for path in identities[0]),
    )
    records = "\n".join(f"    {line.encode()!r}," for line in sample.first)
    test = template("topic_test.py").substitute(full_name=f"{domain}.{name}", records=records)
    chosen = [
        ("event_time", times[0], times[1:]),
        ("dedup_keys", ", ".join(identities[0]), [",".join(columns) for columns in identities[1:4]]),
        ("message_key", chosen_key, []),
    ]
    return _write(name, domain, text, test, root), chosen


def _times_and_identities(
    sample: Sample, event_time: str | None, dedup_keys: Sequence[str] | None
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Returns candidates for the event time and for the identity: those given, or those of the sample."""
    times = [event_time] if event_time else sample.times
    identities = [tuple(dedup_keys)] if dedup_keys else sample.identities
    if not times or not identities:
        raise BadArgument(
            "The sample has no column that is always a time with an offset, 2013-01-01T10:00:00Z."
            if not times
            else "The sample has no column that identifies records.",
            hint="A topic needs one; have the producer add it.",
        )
    return times, identities


def write_table(name: str, *, domain: str, root: Path, reads: str | None = None) -> Written:
    """Writes the two files of a table below `root`.

    Raises:
        BadArgument: the name cannot be used or is taken, the input is unknown, or a file exists already.
    """
    from twofold.tables.declare.registry import load
    from twofold.tables.declare.topic import Topic

    registry = load(root / "tables")
    registry.require_domain(domain)
    require_name(name, domain, registry)
    source = _input(reads or next(topic.name for topic in registry.domain_topics(domain)), domain, registry)
    column = _grouping(source) if isinstance(source, Topic) else source.primary_key[0]
    value, words = _literal(column, registry), {"name": name, "input": source.name, "column": column}
    if isinstance(source, Topic):
        declaration = template("table_of_topic.py").substitute(words, event_time=source.event_time)
        rows = [f'{{"{column}": {value}, "{source.event_time}": "2013-01-01T10:{minute}"}}' for minute in ("05", "50")]
        hour = '"window_start": "2013-01-01T10:00", "window_end": "2013-01-01T11:00"'
        gives = f'{{"{column}": {value}, {hour}, "records": 2}}'
    else:
        declaration = template("table_of_table.py").substitute(words)
        rows = [f'{{"{column}": {value}}}'] * 2
        gives = f'{{"{column}": {value}, "records": 2}}'
    full_name = f"{domain}.{name}"
    test = template("table_test.py").substitute(
        full_name=full_name, input=source.name, given=", ".join(rows), gives=gives
    )
    return _write(name, domain, declaration, test, root)


def _write(name: str, domain: str, declaration: str, test: str, root: Path) -> Written:
    written = Written(declaration=root / "tables" / domain / f"{name}.py", test=root / "tests" / f"test_{name}.py")
    for path in (written.declaration, written.test):
        if path.exists():
            raise BadArgument(f"{path} exists already.", hint="Choose another name, or remove the file.")
    for path, text in {written.declaration: declaration, written.test: test}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return written


def _written(kind: str) -> str:
    """Writes a type as a declaration does."""
    if not _lies_within(kind):
        return _split(kind)
    return f"field({_quoted('.'.join(kind.path))}, {_split(kind)})"


def _lies_within(kind: str) -> TypeGuard[Field]:
    """Whether the column is a field within one of the record's."""
    from twofold.tables.declare.record_fields import Field

    return isinstance(kind, Field)


def _split(kind: str) -> str:
    """Writes a type as a Python string literal, split into several if it is long."""
    parts = textwrap.wrap(kind, 96, drop_whitespace=False, break_long_words=False, break_on_hyphens=False)
    lines = "".join(f"\n            {_quoted(part)}" for part in parts)
    return _quoted(kind) if len(parts) == 1 else f"({lines}\n        )"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _literal(column: str, registry: Registry) -> str:
    """Writes a Python literal for a column of that name."""
    kinds = {t.types[column].name for t in registry.topics.values() if column in t.types}
    literals = {"int": "1", "long": "1", "double": "1.0", "boolean": "True", "timestamp": '"2013-01-01T10:00"'}
    return literals.get(next(iter(sorted(kinds)), ""), '"a"')


def _input(reads: str, domain: str, registry: Registry) -> Topic | Table:
    bare = reads.removeprefix(f"{domain}.")
    declared: Mapping[str, Topic | Table] = {**registry.topics, **registry.tables}
    source = declared.get(f"{domain}.{bare}")
    if source is None:
        names = ", ".join(d.name for d in declared.values() if d.domain == domain)
        raise BadArgument(f"--input={reads!r} is no topic or table of the domain {domain}.", hint=f"It has {names}.")
    return source


def _grouping(topic: Topic) -> str:
    """Returns a text column that groups records, if possible not one that identifies them."""
    texts = [column for column, kind in topic.types.items() if kind.name == "string" and not kind.nullable]
    return next((column for column in texts if column not in (*topic.dedup_keys, topic.message_key)), topic.message_key)
