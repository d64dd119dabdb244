"""Commands for authors: list a declaration's mistakes, preview its rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twofold.cli.console import Json, err, make_table, out, print_fault, print_json
from twofold.infra import COMMAND
from twofold.infra.errors import BadDeclaration, MissingTool, ProcessFailed
from twofold.infra.extras import require_extra
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import harmless, shown

if TYPE_CHECKING:
    from twofold.tables.declare.analysis import Analysis
    from twofold.tables.declare.registry import Registry
    from twofold.tables.declare.table import Table
    from twofold.tables.declare.topic import Topic


def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE or DOMAIN]...", help="All declarations when none is named.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what can be known without Spark, in a second: no types.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A column without a description is a mistake.")] = False,
    as_json: Json = False,
) -> None:
    """Find all mistakes of declarations, without a running platform and without a row of data.

    A file is loaded, the plan of its function is read, and Spark resolves names and types against empty inputs: on the
    platform's server where it runs, else in a JVM of its own. The newest schema of a subject must read what its older
    ones wrote. DAGs are made and stored if Airflow is installed. Exit code 2 when there is a mistake; of a live table
    that only a new rule refuses, a line says what to add; another one names the columns without a description.
    """
    settings = Settings.from_environment()
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.declaration_files import mistakes_in
    from twofold.tables.declare.encodings import find_encoding
    from twofold.tables.declare.registry import load
    from twofold.tables.declare.topic_schemas import incompatible_changes
    from twofold.tables.refresh.acceptance import live_unproved, refused

    registry, lake, chosen = load(quietly=True), Lake(settings), names or []
    left_out, live = refused(lake, registry), live_unproved(lake, registry)
    faults = [fault for full, fault in left_out.items() if not chosen or _is_named(full, chosen)]
    mistakes = [mistake for fault in faults for mistake in mistakes_in(fault)]
    sound = [name for name in chosen if not any(_is_named(full, [name]) for full in left_out)]
    sound += [name for name in chosen if name in registry.domains and name not in sound]
    tables = registry.chosen(sound) if sound or not chosen else []
    tables = [table for table in tables if table.full_name not in left_out]
    topics = [topic for full, topic in registry.topics.items() if not chosen or _is_named(full, chosen)]
    mistakes += [
        mistake
        for topic in topics
        if topic.has_schema_files
        for mistake in incompatible_changes(topic.schema_files, find_encoding(topic.encoding))
    ]
    columns: Mapping[str, Sequence[str]] = {}
    whole: Mapping[str, Sequence[str]] = {}
    if not quick:
        of = {table.domain for table in tables} | {name.partition(".")[0] for name in chosen}
        with _storing_dags(settings) as unstorable:
            if tables:
                analysis = _analysed(settings, registry, tables)
                known = {m.message for name in live for m in mistakes_in(registry.unproved[name])}
                mistakes += [mistake for mistake in analysis.mistakes if mistake.message not in known]
                whole, columns = analysis.whole, analysis.columns
            mistakes += [fault for domain, fault in unstorable().items() if not chosen or domain in of]
    undescribed = [*_undescribed(registry, topics, tables, columns)]
    mistakes += undescribed if strict else []
    if as_json:
        print_json([{"message": m.message, "hint": m.hint} for m in mistakes])
    else:
        _print_advice(tables, live, whole, () if strict else undescribed)
        _print(mistakes, len(tables), quick)
    if mistakes:
        raise typer.Exit(BadDeclaration.exit_code)


def _undescribed(
    registry: Registry, topics: Sequence[Topic], tables: Sequence[Table], columns: Mapping[str, Sequence[str]]
) -> Iterator[BadDeclaration]:
    """Yields the topics and tables with columns that nothing describes.

    Args:
        columns: of tables, as Spark has found them; of others those that are known without Spark are looked at.
    """
    known: dict[str, Iterable[str]] = {topic.full_name: topic.columns for topic in topics}
    known |= {table.full_name: columns.get(table.full_name, table.result_columns) for table in tables}
    for name, of in known.items():
        missing = [column for column in of if column not in registry.descriptions[name]]
        if missing:
            yield BadDeclaration(
                f"tables/{name.replace('.', '/')}.py: no docstring describes {', '.join(missing)}.",
                hint=f"Add a line `{missing[0]}: what it holds, in which unit` to the docstring of "
                f"{'the file' if name in registry.topics else 'its function'}.",
            )


def _print_advice(
    tables: Sequence[Table],
    live: Mapping[str, str],
    whole: Mapping[str, Sequence[str]],
    undescribed: Sequence[BadDeclaration],
) -> None:
    """Prints what live tables lack, what tables could leave out, which are recomputed as a whole, missing words."""
    for table in tables:
        if table.full_name in live:
            out.print(f"[yellow]![/] {escape(live[table.full_name])}", soft_wrap=True)
        if table.redundant:
            given = ", ".join(table.redundant)
            out.print(f"[dim]{table.full_name}: the function says {given}, too: leave it out.[/]", soft_wrap=True)
    for name, inputs in whole.items():
        out.print(f"[dim]{name}: a change of {' or '.join(inputs)} recomputes the whole table.[/]", soft_wrap=True)
    for mistake in undescribed:
        out.print(f"[dim]{escape(mistake.message)}[/]", soft_wrap=True)


def try_(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A table, by full or bare name; it need not exist yet.")
    ],
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="How many rows to show.")] = 20,
    as_json: Json = False,
) -> None:
    """Show the first rows of TABLE as its file declares them, over what was ingested; nothing is created or changed.

    A table that it reads, and that does not exist yet, is computed as well. Rows that are still open are shown, too.
    """
    settings = Settings.from_environment()
    from twofold.batch.preview import preview
    from twofold.infra.delta.lake import Lake
    from twofold.infra.spark.spark_client import naming_lost_server, open_session
    from twofold.tables.declare.registry import load

    registry = load()
    declared = registry.find_table(table)
    with naming_lost_server():
        session = open_session(settings, "try")
        try:
            frame = preview(session, Lake(settings), registry, declared)
            first_rows = frame.orderBy(*declared.primary_key).limit(rows).toArrow().to_pylist()
            columns = frame.columns
        finally:
            session.stop()
    if as_json:
        print_json({"table": declared.full_name, "rows": first_rows})
        return
    cells = [[escape(harmless(shown(row[column]), keep="")) for column in columns] for row in first_rows]
    numbers = [c for c in columns if any(isinstance(row[c], int | float) for row in first_rows)]
    out.print(make_table(declared.full_name, columns, cells, right=numbers, whole=columns))
    first = f"The first {rows} rows" if len(first_rows) == rows else f"{len(first_rows)} rows"
    out.print(f"[dim]{first}, computed just now; `{COMMAND} up` makes the table.[/]")


try_.__name__ = "try"


def _analysed(settings: Settings, registry: Registry, tables: Sequence[Table]) -> Analysis:
    from twofold.infra.spark.spark_client import naming_lost_server, open_session
    from twofold.tables.declare.analysis import analyse

    with naming_lost_server():
        session = open_session(settings, "check")
        try:
            return analyse(session, registry, tables)
        finally:
            session.stop()


@contextmanager
def _storing_dags(settings: Settings) -> Iterator[Callable[[], dict[str, BadDeclaration]]]:
    """Starts a process that makes and stores the DAGs as Airflow does; yields a function that returns the faults.

    Without Airflow there are none, which is printed.
    """
    try:
        require_extra("platform")
    except MissingTool as error:
        err.print(f"[dim]The DAGs are not looked at. {escape(error.message)}[/]", soft_wrap=True)
        yield dict
        return
    from twofold.infra.airflow.airflow_processes import directory

    command = [sys.executable, "-P", "-m", "twofold.dags.sound_dags"]
    with subprocess.Popen(
        command, env={**os.environ, "AIRFLOW_HOME": str(directory(settings))}, stdout=subprocess.PIPE
    ) as process:

        def unstorable() -> dict[str, BadDeclaration]:
            printed = process.communicate()[0].splitlines()
            if process.returncode:
                raise ProcessFailed("The DAGs cannot be made: see above.")
            return {name: BadDeclaration(message, hint=hint) for name, message, hint in json.loads(printed[-1])}

        yield unstorable


def _is_named(full_name: str, names: Sequence[str]) -> bool:
    return any(name in (full_name, *full_name.split(".", 1)) for name in names)


def _print(mistakes: Sequence[BadDeclaration], sound: int, quick: bool) -> None:
    if quick:
        out.print("[dim]Not looked at: names and types, which Spark resolves, and DAGs.[/]")
    for mistake in mistakes:
        print_fault(mistake)
    if mistakes:
        out.print(f"{len(mistakes)} mistake{'' if len(mistakes) == 1 else 's'}.")
    else:
        out.print(f"[green]✓[/] {sound} table{'' if sound == 1 else 's'} without a mistake.")
