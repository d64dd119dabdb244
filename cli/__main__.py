"""The command line: `twofold COMMAND`."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from twofold.cli.commands import (
    as_of_command,
    audit_commands,
    explain_commands,
    inspect_commands,
    maintain_command,
    plan_commands,
    platform_commands,
    rebuild_commands,
    recover_command,
    run_commands,
    topic_commands,
)
from twofold.cli.console import INTERRUPTED, READER_GONE, OutputMode, err, print_error
from twofold.cli.writing import author, new_project, scaffold
from twofold.infra import COMMAND
from twofold.infra.errors import TwofoldError
from twofold.infra.extras import missing_tool
from twofold.infra.project.feature import features

_OF_CORE: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
    "Run the platform": (
        platform_commands.setup,
        platform_commands.settings,
        platform_commands.up,
        platform_commands.down,
        platform_commands.status,
        platform_commands.doctor,
        maintain_command.maintain,
        topic_commands.send,
    ),
    "Look at the data": (
        inspect_commands.tables,
        inspect_commands.show,
        as_of_command.as_of,
        explain_commands.why,
        explain_commands.late,
    ),
    "Run one step by hand": (
        run_commands.stream,
        run_commands.ingest_once,
        run_commands.maintain_once,
        run_commands.reconcile,
        audit_commands.audit,
        audit_commands.certify,
        audit_commands.acknowledge,
        run_commands.quality,
        run_commands.backfill,
        run_commands.replay,
        run_commands.redrive,
        rebuild_commands.rebuild,
        rebuild_commands.rollback,
        plan_commands.plan,
        plan_commands.apply,
        plan_commands.plans,
        plan_commands.publish,
        plan_commands.discard,
        recover_command.recover,
    ),
    "Persons": (),
    "Write a declaration": (new_project.init, author.check, author.try_, scaffold.app),
}


def _brought(place: str) -> list[Callable[..., None] | typer.Typer]:
    """Loads what features add at the end of a panel, or after a command."""
    return [resolve_name(name) for feature in features() for name in feature.commands.get(place, ())]


_ALL = {
    panel: [*(each for own in ours for each in (own, *_brought(getattr(own, "__name__", "")))), *_brought(panel)]
    for panel, ours in _OF_CORE.items()
}
for _brought_one in _brought("new"):
    scaffold.app.command()(_brought_one)
COMMANDS: dict[str, list[Callable[..., None]]] = {
    panel: [command for command in commands if not isinstance(command, typer.Typer)] for panel, commands in _ALL.items()
}
"""Panel of the help -> its commands, without groups of such."""


class Commands(TyperGroup):
    """The commands; each ends like other programs if it is interrupted, or if the reader of its output is gone."""

    def invoke(self, context: Any) -> Any:
        try:
            result = super().invoke(context)
            sys.stdout.flush()
        except KeyboardInterrupt:
            err.print("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError as error:
            if not _is_reader_gone():
                raise TwofoldError(
                    f"A connection broke: {error}.", hint=f"`{COMMAND} status` shows what runs."
                ) from error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it ends
            raise typer.Exit(READER_GONE) from None
        return result


def _is_reader_gone() -> bool:
    import select

    polled = select.poll()
    polled.register(sys.stdout.fileno(), select.POLLERR)
    return any(events & select.POLLERR for _, events in polled.poll(0))


app = typer.Typer(
    cls=Commands,
    name="twofold",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A table is declared once and computed twice: by a stream, now, and by a batch over the log, to be sure.",
    epilog="Exit codes: 0 done, 1 failed for good, 2 bad argument, setting or declaration, 75 worth another try.",
)


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error was raised.")] = False,
) -> None:
    context.ensure_object(OutputMode).debug = debug


def _flowing(text: str) -> str:
    """Joins the lines of each paragraph of a docstring, so that a terminal of any width can wrap them."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


for _panel, _commands in _ALL.items():
    for _each in _commands:
        if isinstance(_each, typer.Typer):
            app.add_typer(_each, rich_help_panel=_panel)
        else:
            app.command(rich_help_panel=_panel, help=_flowing(_each.__doc__ or ""))(_each)


@cache
def _command() -> Callable[..., Any]:
    """Reads the functions of all commands, which takes longer than many a command."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits; an error is one message with its hint and the exit code of its class."""
    mode = OutputMode()
    try:
        _command()(arguments, prog_name=COMMAND, obj=mode)
    except TwofoldError as error:
        _explain(error, mode)
        sys.exit(error.exit_code)
    except Exception as error:
        fault = missing_tool(error) or TwofoldError(
            f"{type(error).__name__}: {error}",
            hint=f"This is a fault of Twofold; {COMMAND} --debug COMMAND shows where.",
        )
        _explain(fault, mode)
        sys.exit(fault.exit_code)


def _explain(error: TwofoldError, mode: OutputMode) -> None:
    if mode.debug:
        err.print(traceback.format_exc(), markup=False, soft_wrap=True)
    print_error(error, as_json=mode.json)


if __name__ == "__main__":
    main()
