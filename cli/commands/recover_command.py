"""The command `recover`: restores the lost state of a table's stream."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.commands.rebuild_commands import TableName
from twofold.cli.console import Json, make_table, out, print_json
from twofold.infra import COMMAND
from twofold.infra.errors import ProcessFailed
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twofold.infra.offset_ranges import Ranges
    from twofold.streaming.rebuild.lost_state import Recovery

_PATIENCE_S = 15.0  # a stream that fails at its start holds the lock for a moment only


def recover(
    table: TableName,
    at_most: Annotated[int, typer.Option(min=0, metavar="N", help="Accept up to this many differing rows.")] = 0,
    from_archive: Annotated[
        bool,
        typer.Option("--from-archive", help="Read the archived log, even where the events reach back to its start."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore the lost checkpoint or state of TABLE's stream, and let the stream continue.

    The streaming code runs over all that the lost stream had read, to the same point, and writes nothing live. Its rows
    are compared with those of the table. A difference is printed, and nothing is restored. Refused while the stream of
    TABLE runs; the other streams of its domain continue.
    """
    settings = Settings.from_environment()
    from twofold.batch.log_reader import Log
    from twofold.batch.reconcile import correct
    from twofold.streaming.rebuild.lost_state import Recover
    from twofold.tables.declare.registry import load
    from twofold.tables.refresh.open_platform import opened

    declared = load().find_table(table)
    with _held(settings, declared.full_name), opened(settings, "recover", [declared.domain], runs_streams=True) as live:
        log = Log(live, [source.full_name for source in live.registry.upstream(declared)])
        recovery = Recover(live, declared, log.starts, log.read, correct)
        result = recovery.run(at_most=at_most, from_archive=from_archive)
    if as_json:
        print_json(result)
    else:
        _print(result)


@contextmanager
def _held(settings: Settings, name: str) -> Iterator[None]:
    """Holds the lock on the table's checkpoint."""
    from twofold.infra.process.file_locks import exclusive

    deadline = time.monotonic() + _PATIENCE_S
    with ExitStack() as stack:
        while not stack.enter_context(exclusive(settings.stream_lock(name))):
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"The stream of {name} runs, or a recovery of it.",
                    hint="A stream that runs has lost nothing. To look at its state all the same, stop it: "
                    f"`{COMMAND} down`.",
                    table=name,
                )
            time.sleep(0.5)
        yield


def _print(recovery: Recovery) -> None:
    if recovery.found == "whole":
        out.print(f"{recovery.table}: nothing was lost, and nothing done.")
    else:
        out.print(f"{recovery.table}: made again and put in place; its stream goes on from there.")
    places = [(name, version, _ranges(recovery.offsets.get(name, {}))) for name, version in recovery.versions.items()]
    title = f"Read from the {recovery.source}" if recovery.source else "The stream goes on after"
    out.print(make_table(title, ["input", "versions below", "offsets by partition"], places, right=["versions below"]))
    if recovery.rows:
        counts = (recovery.rows.rows, recovery.rows.missing, recovery.rows.extra, recovery.rows.changed)
        columns = ["compared", "missing", "extra", "changed"]
        out.print(make_table("The live table against the stream run again, in rows", columns, [counts], right=columns))


def _ranges(ranges: Ranges) -> str:
    return ", ".join(f"{partition}: [{start}, {end})" for partition, (start, end) in sorted(ranges.items())) or NOTHING
