"""Commands about outputs: show them, send rows again, search one, run them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape

from twofold.cli.commands.rebuild_commands import TableName
from twofold.cli.console import Json, out, print_json
from twofold.cli.outputs_table import outputs_table
from twofold.features.outputs.chosen_output import OutputName, chosen_output
from twofold.infra import COMMAND, DOCS
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings

app = typer.Typer(name="outputs", invoke_without_command=True, no_args_is_help=False)


@app.callback()
def outputs(context: typer.Context, as_json: Json = False) -> None:
    """Show the outputs of tables: what each copy shows, how far it is behind, and why it does not go on."""
    if context.invoked_subcommand is not None:
        return
    from twofold.features.outputs.follow.output_reports import output_reports
    from twofold.infra.delta.lake import Lake
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
    from twofold.features.outputs.commands.resend import resend_all, resend_from, resume
    from twofold.features.outputs.open_target import open_target
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.output import Output
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
    from twofold.features.outputs.revealed_places import Place
    from twofold.features.outputs.targets.webhook_output import WebhookOutput
    from twofold.features.outputs.targets.webhook_queue import WebhookQueue
    from twofold.infra.delta.lake import Lake
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
    from twofold.features.outputs.open_target import open_place
    from twofold.features.outputs.revealed_places import Place, note_revealed, revealed_places
    from twofold.infra.delta.lake import Lake
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
    from twofold.features.outputs.follow.runner import run
    from twofold.tables.declare.registry import running

    os.umask(0o077)  # copies have values of persons in the clear
    settings = Settings.from_environment()
    run(settings, running(settings))
