"""The command `recapture`: captures a table again, from a new snapshot on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.commands.run_commands import TopicName
from twofold.cli.console import out, step
from twofold.infra import COMMAND, DOCS
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from twofold.features.capture.captured_table import Capture
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import Registry
    from twofold.tables.declare.topic import Topic


def recapture(
    topic: TopicName,
    timeout_min: Annotated[
        int, typer.Option("--timeout", min=1, metavar="MINUTES", help="How long the snapshot may take.")
    ] = 240,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only compare: which rows would be added, changed and deleted.")
    ] = False,
) -> None:
    """Capture the table of TOPIC again: a new snapshot, then the changes after it; rows that are gone are deleted.

    Use it after lost or refused changes, or if the table was truncated. Existing events and history stay; new events
    follow them in the log. Safe to repeat: an interrupted recapture is continued.
    """
    settings = Settings.from_environment()
    from twofold.features.capture.captured_topic import captures
    from twofold.features.capture.debezium_connector import wait_snapshot
    from twofold.features.capture.operate.recapture import begin, finish, wait_ingested
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import load

    registry, lake = load(), Lake(settings)
    declared = registry.find_topic(topic)
    capture = next((found for found in captures(registry) if found.topic == declared.full_name), None)
    if capture is None:
        raise BadArgument(
            f"{declared.full_name} captures no table of a database.",
            hint=f"What is captured is declared by `changes_of` or `outbox_of`: {DOCS}/how-to/capture-a-database.md.",
        )
    if preview:
        _preview(settings, registry, lake, declared, capture)
        return
    with step(f"Snapshot of {capture.table}"):
        capture = begin(settings, lake, capture)
        wait_snapshot(settings, capture, timeout_min * 60)
    with step(f"Events of {capture.topic}"):
        wait_ingested(settings, lake, declared)
    with step("Rows that are gone"):
        deleted = finish(settings, lake, declared, capture)
    rows = "1 row that is" if deleted == 1 else f"{deleted:,} rows that are"
    out.print(f"{capture.topic} has snapshot {capture.snapshot} of {capture.table}; {rows} not in it were deleted.")


def _preview(settings: Settings, registry: Registry, lake: Lake, topic: Topic, capture: Capture) -> None:
    """Prints the differences between the rows that follow from the changes and those of the database."""
    from twofold.batch.audit.hash_buckets import Turn
    from twofold.features.capture.operate.capture_states import capture_states
    from twofold.features.capture.operate.database_audit import EXAMPLES, compare_with_database

    faults = [
        state.fault for state in capture_states(lake, registry, datetime.now(UTC)) if state.topic == capture.topic
    ]
    with step(f"Rows of {capture.table} in the database"):
        compared = compare_with_database(lake, topic, capture, Turn(), waits=not any(faults))
    for fault in filter(None, faults):
        out.print(f"{capture.topic}: {fault}", markup=False)
    kinds = {"added": compared.missing, "changed": compared.different, "deleted": compared.extra}
    counts = ", ".join(f"{len(keys):,} {kind}" for kind, keys in kinds.items())
    out.print(f"A new snapshot of {capture.table} would bring: {counts}, of {compared.rows:,} rows in the database.")
    for kind, keys in kinds.items():
        for key in keys[:EXAMPLES]:
            out.print(f"  {kind}  {key}", markup=False)
    if compared.left_out:
        out.print(f"Not compared, encrypted or written by two systems in two ways: {', '.join(compared.left_out)}.")
    tables = ", ".join(table.full_name for table in registry.below([topic.full_name]))
    out.print(f"Tables below: {tables or 'none'}.")
    out.print(f"Nothing was changed. `{COMMAND} recapture {capture.topic}` makes the snapshot.", markup=False)
