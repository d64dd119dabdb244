"""The command that queries the tables: at a prompt, as text, or into a file."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twofold.cli.console import Json, make_table, out, print_json, result_cell
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import harmless

if TYPE_CHECKING:
    from twofold.features.analysts.sql_query import Analyst
    from twofold.infra.delta.lake import Lake

MOST_ROWS = 100
WRITTEN_AT_ONCE = 65_536


def sql(
    query: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="The SQL; without it a prompt opens.")] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values with a header.")] = False,
    file: Annotated[list[Path] | None, typer.Option(help="A file that may be read, too: FROM 'FILE'.")] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the result to FILE.parquet, .csv or .arrow, with what it was made of."
        ),
    ] = None,
) -> None:
    """Query the Delta tables with DuckDB: FROM flights.delays_by_hour, or the bare name if it is unique.

    It is read-only and reads no other file. Times are UTC. Without QUERY it opens a prompt, or reads the query from a
    pipe. A file says the query, the time, and each table with its version and the fingerprint of its code.
    """
    if as_json and as_csv:
        raise BadArgument("--json and --csv exclude each other.")
    if to is not None:
        from twofold.features.analysts.result_file import require_format

        require_format(to)
    from twofold.features.analysts.sql_functions import define_functions
    from twofold.features.analysts.sql_query import Analyst
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import load

    settings = Settings.from_environment()
    if query is None and not sys.stdin.isatty():
        query = sys.stdin.read()
    lake = Lake(settings)
    analyst = Analyst(lake, files=file or (), pinned=to is not None)
    define_functions(analyst, lake, load)
    if to is not None:
        with analyst.interruptible():
            _write_file(analyst, lake, query or "", to, as_json)
        return
    if query is None:
        from twofold.features.analysts.sql_shell import talk

        talk(analyst, settings.home / "sql_history", lambda statement: _print_result(analyst, statement))
        return
    with analyst.interruptible():
        if as_json or as_csv:
            _write_result(analyst, query, as_csv)
        else:
            _print_result(analyst, query)


def _write_file(analyst: Analyst, lake: Lake, query: str, to: Path, as_json: bool) -> None:
    from twofold.features.analysts.result_file import provenance, write_result

    rows = analyst.run(query).to_arrow_reader(WRITTEN_AT_ONCE)
    facts = provenance(lake, query, analyst.read_by(query))
    count = write_result(rows, to, facts)
    if as_json:
        print_json({"file": str(to), "rows": count, **facts})
    else:
        out.print(f"Written to {escape(str(to))}: {count:,} row{'' if count == 1 else 's'}.", soft_wrap=True)


def _write_result(analyst: Analyst, query: str, as_csv: bool) -> None:
    from twofold.features.analysts.result_file import csv_value

    result = analyst.run(query)
    columns = [column[0] for column in result.description or ()]
    if as_csv:
        clean = harmless if sys.stdout.isatty() else str  # a file gets the very bytes
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(clean, columns))
        while batch := result.fetchmany(10_000):
            writer.writerows([csv_value(value, clean) for value in row] for row in batch)
    else:
        print_json([dict(zip(columns, row, strict=True)) for row in result.fetchall()])


def _print_result(analyst: Analyst, query: str) -> None:
    result = analyst.run(query)
    columns = [column[0] for column in result.description or ()]
    fetched = result.fetchmany(MOST_ROWS + 1)
    rows = fetched[:MOST_ROWS]
    cells = [[result_cell(value) for value in row] for row in rows]
    right = [c for n, c in enumerate(columns) if any(isinstance(row[n], int | float) for row in rows)]
    out.print(make_table(None, [escape(c) for c in columns], cells, right=right, whole=columns))
    if len(fetched) > MOST_ROWS:
        out.print(f"[dim]The first {MOST_ROWS} rows; --csv and --json print all.[/]")
    else:
        out.print(f"[dim]{len(rows)} row{'' if len(rows) == 1 else 's'}[/]")
