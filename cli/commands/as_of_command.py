"""The command `as-of`: a table as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.console import Json, make_table, out, print_json, shown
from cli.parsing import parse_offsets, parse_time
from infra.errors import BadArgument
from infra.settings import Settings

if TYPE_CHECKING:
    from batch.offset_selection import Edge
    from tables.engine.declarations.declaration import Table
    from tables.engine.declarations.registry import Registry

MOST_ROWS = 20


def as_of(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table, by full or bare name.")],
    at: Annotated[
        list[str],
        typer.Argument(
            metavar="PLACE...",
            help="A time, 2013-01-05T06:30 (UTC): what the broker had got before it; or TOPIC@OFFSETS of each topic "
            "that the table is computed from: departures@0:1200,1:80.",
        ),
    ],
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Write all rows to a Parquet file.")] = None,
    as_json: Json = False,
) -> None:
    """Compute TABLE as it was at a point of the log, by today's definition; the live table stays as it is.

    The column `_final` says whether a row had closed by then.
    """
    settings = Settings.from_environment()
    if to is not None and to.exists():
        raise BadArgument(f"--to {to} is there already.", hint="Choose another file, or remove it.")
    from tables.engine.declarations.registry import load

    registry = load()
    declared = registry.find_table(table)
    before = _before(at, declared, registry)
    from batch.as_of import AsOf
    from tables.engine.refresh.open_platform import opened

    with opened(settings, "as-of", [declared.domain]) as platform:
        rows = AsOf(platform, before).rows(declared)
        if to is not None:
            import pyarrow.parquet

            pyarrow.parquet.write_table(rows.orderBy(*declared.primary_key).toArrow(), to)
            out.print(f"Written to {to}.")
            return
        rows = rows.persist()  # or all of it is computed twice
        found = rows.orderBy(*declared.primary_key).limit(MOST_ROWS).toArrow().to_pylist()
        count = rows.count()
        rows.unpersist()
    if as_json:
        print_json({"table": declared.full_name, "rows": count, "first": found})
        return
    columns = list(found[0]) if found else [*declared.primary_key]
    out.print(
        make_table(
            f"{declared.full_name} as of {' '.join(at)}", columns, [[shown(v) for v in row.values()] for row in found]
        )
    )
    out.print(f"[dim]{min(count, MOST_ROWS):,} of {count:,} rows; --to FILE writes all.[/]")


def _before(places: Sequence[str], table: Table, registry: Registry) -> Mapping[str, Edge]:
    """Topic -> what is typed of it; one time holds for all topics of the table."""
    if len(places) == 1 and "@" not in places[0]:
        return dict.fromkeys(registry.above(table).topics, parse_time(places[0], "PLACE"))
    before: dict[str, Edge] = {}
    for place in places:
        name, at_sign, offsets = place.partition("@")
        if not at_sign:
            raise BadArgument(f"{place!r}: expected TOPIC@OFFSETS.", hint="Write departures@0:1200,1:80, or one time.")
        topic = registry.find_topic(name)
        before[topic.full_name] = parse_offsets(offsets, name, topic.partitions) or {}
    return before
