"""The command that finds rows of a table by their words."""

from __future__ import annotations

from typing import Annotated

import typer

from twofold.cli.commands.rebuild_commands import TableName
from twofold.cli.console import Json, make_table, out, print_json
from twofold.features.outputs.chosen_output import OutputName, chosen_output
from twofold.infra.project.settings import Settings


def search(
    table: TableName,
    words: Annotated[
        list[str],
        typer.Argument(metavar="WORD", help='All have to be there; also "a phrase", column:word, (one OR other).'),
    ],
    output: OutputName = "",
    limit: Annotated[int, typer.Option(help="How many rows to show.", min=1)] = 10,
    as_json: Json = False,
) -> None:
    """Find the rows of TABLE by their words, best match first, in the index that its output to_search keeps."""
    from twofold.features.outputs.revealed_places import Place
    from twofold.features.search.search_index import SearchIndex
    from twofold.features.search.search_output import SearchOutput
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import load

    declared = load().find_table(table)
    chosen = chosen_output(declared, output, SearchOutput)
    index = SearchIndex(Lake(Settings.from_environment()), Place.declared(declared, chosen), chosen)
    matches = index.find(" ".join(words), limit)
    if as_json:
        print_json(matches)
        return
    if not matches:
        out.print(f"No row of {declared.full_name} has these words.")
        return
    columns = list(matches[0].row)
    lines = [(f"{hit.score:.2f}", *map(hit.row.get, columns)) for hit in matches]
    out.print(make_table(None, ["score", *columns], lines, right=["score"]))
