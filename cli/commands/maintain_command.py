"""Command that removes what grows and what nothing else removes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from twofold.cli.console import Json, make_table, out, print_json
from twofold.infra import COMMAND
from twofold.infra.errors import ProcessFailed
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import shown_bytes

if TYPE_CHECKING:
    from twofold.batch.chores.doomed import Doomed


def maintain(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; also show from where on tables keep history, and why.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove what nothing needs any more: history of quiet tables, and what ended and killed work has left.

    It can run at any time, while all else runs, and as often as you like; a DAG runs it every day.
    """
    from twofold.batch.chores.table_chores import outlooks
    from twofold.batch.chores.upkeep import upkeep
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import load

    lake, registry, faults = Lake(Settings.from_environment()), load(), list[str]()
    doomed = list(upkeep(lake, registry, datetime.now(UTC), faults, dry_run=dry_run))
    floors: list[dict[str, Any]] = []
    for name, outlook in outlooks(lake) if dry_run else ():
        changes, rows = outlook.floor.changes, outlook.floor.rows
        floors.append({"table": name, "changes": changes, "rows": rows, "because": outlook.because})
    if as_json:
        removed = [{"what": each.what, "bytes": each.bytes, "why": each.why} for each in doomed]
        print_json({"dry_run": dry_run, "doomed": removed, "floors": floors, "faults": faults})
    else:
        _show(doomed, floors, dry_run=dry_run)
    if faults:
        said = "\n".join(["Some chores could not be done; the others were.", *faults])
        raise ProcessFailed(said, hint=f"`{COMMAND} maintain` does all again.")


def _show(doomed: Sequence[Doomed], floors: Sequence[dict[str, Any]], *, dry_run: bool) -> None:
    rows = [(shown_bytes(each.bytes), escape(each.what), escape(each.why)) for each in doomed]
    if rows:
        rows.append((shown_bytes(sum(each.bytes for each in doomed)), "in all", ""))
        title = "Nothing needs these" if dry_run else "Removed"
        out.print(make_table(title, ["size", "what", "why"], rows, right=["size"], whole=["what"]))
    else:
        out.print("There is nothing to remove.")
    if floors:
        columns = ["table", "changes", "rows", "because"]
        kept = [[escape(str(floor[column])) for column in columns] for floor in floors]
        out.print(make_table("Versions from which on history is kept", columns, kept, right=["changes", "rows"]))
