"""Commands about outputs: show them, send rows again, search one, run them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.markup import escape

from twofold.cli.commands.rebuild_commands import TableName
from twofold.cli.console import Json, make_table, out, print_json
from twofold.infra import COMMAND, DOCS
from twofold.infra.errors import BadArgument, nearest
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import shown_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twofold.status.parts.snapshot import OutputReport
    from twofold.tables.declare.outputs.output import Output
    from twofold.tables.declare.table import Table

OutputName = Annotated[str, typer.Option("--output", metavar="NAME", help="The output, where TABLE has several.")]
Declared = TypeVar("Declared", bound="Output")
app = typer.Typer(name="outputs", invoke_without_command=True, no_args_is_help=False)


@app.callback()
def outputs(context: typer.Context, as_json: Json = False) -> None:
    """Show the outputs of tables: what each copy shows, how far it is behind, and why it does not go on."""
    if context.invoked_subcommand is not None:
        return
    from twofold.infra.delta.lake import Lake
    from twofold.status.parts.outputs import output_reports
    from twofold.tables.declare.registry import running

    settings = Settings.from_environment()
    reports = output_reports(Lake(settings), running(settings), datetime.now(UTC))
    if as_json:
        print_json(reports)
        return
    if not reports:
        out.print(f"No table that runs declares outputs; {DOCS}/how-to/copy-a-table.md shows how.")
        return
    out.print(outputs_table(reports))
    for report in reports:
        if report.error:
            out.print(f"[yellow]![/] {escape(f'{report.table}: {report.output}: {report.error}')}", soft_wrap=True)


def outputs_table(reports: Sequence[OutputReport]) -> RenderableType:
    """Lays outputs out for people."""
    numbers = ["version", "behind", "for", "waiting", "refused"]
    lines = []
    for o in reports:
        values = (o.version, o.behind, shown_duration(o.behind_s), o.waiting, o.refused)
        lines.append((f"{o.table}: {o.output}", o.kind, o.state, *values))
    return make_table("Outputs", ["output", "kind", "state", *numbers], lines, right=numbers, spare=["kind"])


def chosen_output(declared: Table, name: str, kind: type[Declared]) -> Declared:
    """Returns the output of a table with this name; without one the only output of the kind.

    Raises:
        BadArgument: the table has no such output, or several and none is named.
    """
    from twofold.tables.declare.outputs.output import Output, kinds

    outputs = {output.name_for(declared.name): output for output in declared.outputs if isinstance(output, kind)}
    if not outputs:
        one = "output" if kind is Output else f"output to_{kind.kind}"
        raise BadArgument(
            f"{declared.full_name} has no {one}.",
            hint=f"A table declares them in outputs=[...]: {', '.join(f'to_{kind}()' for kind in sorted(kinds()))}.",
        )
    if (name or len(outputs) > 1) and name not in outputs:
        shown = f"no output {name!r}" if name else f"{len(outputs)} outputs"
        known = f"Name one by --output: {', '.join(outputs)}."
        raise BadArgument(f"{declared.full_name} has {shown}.", hint=nearest(name, outputs, known))
    return outputs[name] if name else next(iter(outputs.values()))


@app.command()
def resend(
    table: TableName,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="N|now",
            help="now: the copy is compared with the table, and gets what differs; changes (webhooks, topics "
            "without compaction) go on with the next one. N: each row that changed since version N of the table is "
            "sent again, whether the copy has it or not; changes are those of the commits after N once more.",
        ),
    ],
    output: OutputName = "",
) -> None:
    """Send rows of TABLE to the copy of an output again: after the copy was edited, or restored from a backup."""
    from twofold.infra.delta.lake import Lake
    from twofold.outputs.resend import resend_all, resend_from, resume
    from twofold.outputs.targets.open_target import open_target
    from twofold.tables.declare.outputs.output import Output
    from twofold.tables.declare.registry import load

    declared = load().find_table(table)
    chosen = chosen_output(declared, output, Output)
    if start != "now" and not start.isdecimal():
        raise BadArgument(f"--from {start}: expected a version of the table, or now.")
    lake, version = Lake(Settings.from_environment()), None if start == "now" else int(start)
    target = open_target(lake, declared, chosen)
    if not chosen.is_read:
        after = resume(target, lake, declared, chosen, version)
        out.print(f"{declared.full_name}: what changed after version {after} is sent next; {COMMAND} outputs shows it.")
        return
    if version is None:
        resend_all(target, lake, declared)
        out.print(f"{declared.full_name}: the copy is compared with the table next; {COMMAND} outputs shows it.")
    else:
        rows = resend_from(target, lake, declared, version)
        out.print(f"{declared.full_name}: {rows:,} rows were sent again.")


@app.command()
def retry(table: TableName, output: OutputName = "") -> None:
    """Send the changes of TABLE again that the receiver of a webhook has refused."""
    from twofold.infra.delta.lake import Lake
    from twofold.outputs.revealed_places import Place
    from twofold.outputs.targets.webhook_queue import WebhookQueue
    from twofold.tables.declare.outputs.webhook_output import WebhookOutput
    from twofold.tables.declare.registry import load

    declared = load().find_table(table)
    chosen = chosen_output(declared, output, WebhookOutput)
    queue = WebhookQueue(Lake(Settings.from_environment()), Place.declared(declared, chosen), chosen)
    changes = queue.retry()
    out.print(f"{declared.full_name}: {changes:,} refused changes wait again.")


@app.command()
def erase(
    place: Annotated[str, typer.Argument(metavar="'TABLE: OUTPUT'", help="As the certificate of a person names it.")],
    gone: Annotated[
        bool, typer.Option("--gone", help="Only say that nothing is there any more: it was removed by other means.")
    ] = False,
) -> None:
    """Remove the copy of an output that has revealed values of persons, and is not declared any more."""
    from twofold.infra.delta.lake import Lake
    from twofold.outputs.revealed_places import Place, note_revealed, revealed_places
    from twofold.outputs.targets.open_target import open_place
    from twofold.tables.declare.registry import load

    lake, registry = Lake(Settings.from_environment()), load().require_sound()
    declared = {Place.declared(table, output): bool(output.reveal) for table, output in registry.outputs()}
    # The copy of a declared one goes on; a person can say of a receiver that it has removed what it was sent.
    kept = {revealed for revealed, reveals in declared.items() if reveals or not gone}
    chosen = [revealed for revealed in revealed_places(lake) if str(revealed) == place and revealed not in kept]
    if not chosen:
        hint = f"`{COMMAND} forget KIND ID --certificate` names such places."
        raise BadArgument(f"{place}: no output that is declared no more has revealed values there.", hint=hint)
    for revealed in chosen:
        if not gone:
            open_place(lake, revealed).erase()
        note_revealed(lake, revealed, is_gone=True)
    out.print(f"{place}: nothing is there any more.", markup=False)


@app.command()
def follow() -> None:
    """Move the outputs of all tables that run on, until it is stopped; `up` runs this as a process of its own."""
    from twofold.outputs.follow.runner import run
    from twofold.tables.declare.registry import running

    os.umask(0o077)  # copies have values of persons in the clear
    settings = Settings.from_environment()
    run(settings, running(settings))
