"""The command `recapture`: a captured table, from a new snapshot on."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands.run_commands import TopicName
from cli.console import out, step
from infra.errors import BadArgument
from infra.settings import Settings


def recapture(
    topic: TopicName,
    timeout_min: Annotated[
        int, typer.Option("--timeout", min=1, metavar="MINUTES", help="How long the snapshot may take.")
    ] = 240,
) -> None:
    """Capture the table of TOPIC again: a new snapshot, then the changes after it; rows that are gone are deleted.

    Heals changes that were lost, a truncated table, and changes that were refused. Events stay as they are, history
    too. Safe to repeat: one that was interrupted is continued.
    """
    settings = Settings.from_environment()
    from batch.capture.recapture import begin, finish, wait_ingested
    from infra.capture.debezium_connector import wait_snapshot
    from infra.delta.lake import Lake
    from tables.declare.captured_topic import captures
    from tables.declare.registry import load

    registry, lake = load(), Lake(settings)
    declared = registry.find_topic(topic)
    capture = next((found for found in captures(registry) if found.topic == declared.full_name), None)
    if capture is None:
        raise BadArgument(
            f"{declared.full_name} captures no table of a database.",
            hint="What is captured is declared by `changes_of` or `outbox_of`: docs/how-to/capture-a-database.md.",
        )
    with step(f"Snapshot of {capture.table}"):
        capture = begin(settings, lake, capture)
        wait_snapshot(settings, capture, timeout_min * 60)
    with step(f"Events of {capture.topic}"):
        wait_ingested(settings, lake, declared)
    with step("Rows that are gone"):
        deleted = finish(settings, lake, declared, capture)
    rows = "1 row that is" if deleted == 1 else f"{deleted:,} rows that are"
    out.print(f"{capture.topic} has snapshot {capture.snapshot} of {capture.table}; {rows} not in it were deleted.")
