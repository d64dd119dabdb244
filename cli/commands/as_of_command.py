"""The command `as-of`: computes a table as of an earlier position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twofold.cli.commands.run_commands import TableOrDomain
from twofold.cli.console import Json, make_table, out, print_json
from twofold.cli.parsing import parse_offsets, parse_time
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from twofold.batch.offset_selection import LogPosition
    from twofold.tables.declare.registry import Registry
    from twofold.tables.declare.table import Table

MOST_ROWS = 20


def as_of(
    table: TableOrDomain,
    at: Annotated[
        list[str],
        typer.Argument(
            metavar="POSITION...",
            help="A time, 2013-01-05T06:30 (UTC): the records that the broker appended before it; or TOPIC@OFFSETS "
            "for each topic that the table is computed from: departures@0:1200,1:80.",
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write all rows to a Parquet file, of DOMAIN to a folder of files."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute TABLE, or each table of DOMAIN, as of a position in the log, by today's definition; changes no table.

    The column `_final` says whether the row was closed by then. With DOMAIN, --json prints a list.
    """
    settings = Settings.from_environment()
    if to is not None and to.exists():
        raise BadArgument(f"--to {to} exists already.", hint="Choose another name, or remove it.")
    from twofold.tables.declare.registry import load

    registry = load()
    declared, is_domain = registry.chosen([table]), table in registry.domains
    before = _before(at, declared, registry)
    if to is not None and is_domain:
        to.mkdir(parents=True)
    from twofold.batch.as_of import AsOf
    from twofold.tables.refresh.open_platform import opened

    documents = []
    with opened(settings, "as-of", [table_of.domain for table_of in declared]) as platform:
        for table_of in declared:
            topics = registry.above(table_of).topics
            own = {name: place for name, place in before.items() if name in topics} if is_domain else before
            rows = AsOf(platform, own).rows(table_of)
            if to is not None:
                _write(rows, table_of, to / f"{table_of.name}.parquet" if is_domain else to)
                continue
            first, count = _first(rows, table_of)
            if as_json:
                documents.append({"table": table_of.full_name, "rows": count, "first": first})
            else:
                _print(table_of, " ".join(at), first, count)
    if as_json and to is None:
        print_json(documents if is_domain else documents[0])


def _write(rows: DataFrame, table: Table, to: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(rows.orderBy(*table.primary_key).toArrow(), to)
    out.print(f"Written to {to}.")


def _first(rows: DataFrame, table: Table) -> tuple[list[dict[str, Any]], int]:
    rows = rows.persist()  # or all of it is computed twice
    first = rows.orderBy(*table.primary_key).limit(MOST_ROWS).toArrow().to_pylist()
    count = rows.count()
    rows.unpersist()
    return first, count


def _print(table: Table, position: str, first: Sequence[Mapping[str, Any]], count: int) -> None:
    columns = list(first[0]) if first else [*table.primary_key]
    cells = [[shown(value) for value in row.values()] for row in first]
    out.print(make_table(f"{table.full_name} as of {position}", columns, cells))
    out.print(f"[dim]{min(count, MOST_ROWS):,} of {count:,} rows; --to FILE writes all.[/]")


def _before(positions: Sequence[str], tables: Sequence[Table], registry: Registry) -> Mapping[str, LogPosition]:
    """Maps each topic to its given position; a single time applies to all topics upstream of the tables."""
    topics = {name for table in tables for name in registry.above(table).topics}
    if len(positions) == 1 and "@" not in positions[0]:
        return dict.fromkeys(sorted(topics), parse_time(positions[0], "POSITION"))
    before: dict[str, LogPosition] = {}
    for position in positions:
        name, at_sign, offsets = position.partition("@")
        if not at_sign:
            raise BadArgument(
                f"{position!r}: expected TOPIC@OFFSETS.", hint="Write departures@0:1200,1:80, or one time."
            )
        topic = registry.find_topic(name)
        before[topic.full_name] = parse_offsets(offsets, name, topic.partitions) or {}
    if len(tables) > 1 and (foreign := sorted(set(before) - topics)):
        raise BadArgument(
            f"No table of {tables[0].domain} is computed from {foreign[0]}.",
            hint=f"They are computed from {', '.join(sorted(topics))}.",
        )
    return before
