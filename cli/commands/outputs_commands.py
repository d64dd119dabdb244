"""Commands about outputs: show them, send rows again, run them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cli.commands.rebuild_commands import TableName
from cli.console import Json, make_table, out, print_json, shown_duration
from infra.errors import BadArgument, nearest
from infra.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType

    from status.outputs import OutputReport

app = typer.Typer(invoke_without_command=True, no_args_is_help=False)


@app.callback()
def outputs(context: typer.Context, as_json: Json = False) -> None:
    """Show the outputs of tables: what each copy shows, how far it is behind, and why it does not go on."""
    if context.invoked_subcommand is not None:
        return
    from infra.delta.lake import Lake
    from status.outputs import output_reports
    from tables.declare.registry import running

    settings = Settings.from_environment()
    found = output_reports(Lake(settings), running(settings), datetime.now(UTC))
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("No table that runs declares outputs; docs/how-to/copy-a-table.md shows how.")
        return
    out.print(outputs_table(found))
    for one in found:
        if one.error:
            out.print(f"[yellow]![/] {escape(f'{one.table}: {one.output}: {one.error}')}", soft_wrap=True)


def outputs_table(found: Sequence[OutputReport]) -> RenderableType:
    """Lays outputs out for people."""
    numbers = ["version", "behind", "for", "refused"]
    lines = [
        (f"{o.table}: {o.output}", o.kind, o.state, o.version, o.behind, shown_duration(o.behind_s), o.refused)
        for o in found
    ]
    return make_table("Outputs", ["output", "kind", "state", *numbers], lines, right=numbers, spare=["kind"])


@app.command()
def resend(
    table: TableName,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="N|now",
            help="now: the copy is compared with the table, and gets what differs. N: each row that changed since "
            "version N of the table is sent again, whether the copy has it or not.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", metavar="NAME", help="The output, where TABLE has several.")] = "",
) -> None:
    """Send rows of TABLE to the copy of an output again: after the copy was edited, or restored from a backup."""
    from infra.delta.lake import Lake
    from outputs.resend import resend_all, resend_from
    from outputs.targets.open_target import open_target
    from tables.declare.registry import load

    declared = load().find_table(table)
    names = [one.name_for(declared.name) for one in declared.outputs]
    if not names:
        raise BadArgument(
            f"{declared.full_name} has no output.", hint="A table declares them: outputs=[to_postgres()]."
        )
    if (output or len(names) > 1) and output not in names:
        shown = f"no output {output!r}" if output else f"{len(names)} outputs"
        known = f"Name one by --output: {', '.join(names)}."
        raise BadArgument(f"{declared.full_name} has {shown}.", hint=nearest(output, names, known))
    if start != "now" and not start.isdecimal():
        raise BadArgument(f"--from {start}: expected a version of the table, or now.")
    chosen = declared.outputs[names.index(output) if output else 0]
    lake = Lake(Settings.from_environment())
    target = open_target(lake, declared, chosen)
    if start == "now":
        resend_all(target, lake, declared)
        out.print(f"{declared.full_name}: the copy is compared with the table next; ./twofold outputs shows it.")
    else:
        rows = resend_from(target, lake, declared, int(start))
        out.print(f"{declared.full_name}: {rows:,} rows were sent again.")


@app.command()
def follow() -> None:
    """Move the outputs of all tables that run on, until it is stopped; `up` runs this as a process of its own."""
    from outputs.follow.runner import run
    from tables.declare.registry import running

    settings = Settings.from_environment()
    run(settings, running(settings))
