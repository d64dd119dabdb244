"""Rewrites history on live tables and takes it back: a misread day, another definition, days that are recomputed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from twofold.cli.console import out, step
from twofold.demo.traffic.sources import MISSIONS, Mission
from twofold.infra import COMMAND
from twofold.infra.errors import ProcessFailed
from twofold.infra.offset_ranges import Ranges
from twofold.infra.process.twofold_command import run_command
from twofold.infra.project.project import project
from twofold.infra.project.settings import Settings
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold_algebra.sql.names import DATAFUSION


def run_steps(settings: Settings, domain: str, day: date, chosen: Collection[str]) -> None:
    """Runs the chosen steps on the tables of a domain, which are afterwards as they were.

    Args:
        day: the first one of the data.

    Raises:
        ProcessFailed: a step failed, or changed other rows than it should.
    """
    for name, step_of in STEPS.items():
        if name in chosen:
            step_of(settings, domain, MISSIONS[domain], day)


def _replay(settings: Settings, domain: str, mission: Mission, day: date) -> None:
    """Lets a day be as a faulty decoder reads it, and decodes it again, from the archive if that has it."""
    from twofold.demo.run.dag_runs import approved, run_dag
    from twofold.infra.kafka.topic_admin import offsets

    bounds = offsets(settings, [mission.topic])[mission.topic]
    archived = {partition: bound.tiered for partition, bound in bounds.items() if bound.tiered}
    ends = archived or {partition: bound.latest for partition, bound in bounds.items()}
    with step(f"A faulty decoder misreads a day of {mission.topic}"):
        misread, places = _misread(settings, mission, day, ends)
        _run(settings, "reconcile", "--json")
    out.print(f"  {mission.column} of {misread:,} events is wrong, and so are the tables that read them.")
    params = {
        "topic": mission.topic,
        "from_offsets": ",".join(f"{partition}:{start}" for partition, (start, _) in places.items()),
        "to_offsets": ",".join(f"{partition}:{end}" for partition, (_, end) in places.items()),
        "archived": bool(archived),
    }
    run = run_dag(settings, f"{domain}.replay", params, answer=approved)
    changed = int(run.result("preview")["changed"])
    if changed < misread:
        raise ProcessFailed(f"{misread} events were to be decoded again, the replay changed {changed} rows.")
    source = "the archive, past the broker" if archived else "the log"
    out.print(f"  Decoded again from {source}: {changed:,} rows put right.")


def _misread(settings: Settings, mission: Mission, day: date, ends: Mapping[int, int]) -> tuple[int, Ranges]:
    """Writes what a faulty decoder would have, into a day's events before some offsets.

    Returns:
        Their number, and by partition the offsets that they are among.
    """
    import pyarrow as pa
    from deltalake import CommitProperties

    from twofold.infra.delta.lake import Lake

    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    moments = [DATAFUSION.literal(at) for at in (start, start + timedelta(days=1))]
    at = DATAFUSION.name(mission.time)
    before = " OR ".join(f"({PARTITION} = {partition} AND {OFFSET} < {end})" for partition, end in ends.items())
    misread = f"{at} >= {moments[0]} AND {at} < {moments[1]} AND {mission.column} IS NOT NULL AND ({before})"
    events = Lake(settings).open(mission.topic)
    records = pa.table(events.scan(columns=[PARTITION, OFFSET], predicate=misread))
    edges = records.group_by(PARTITION).aggregate([(OFFSET, "min"), (OFFSET, "max")]).to_pylist()
    # The cause by which streams leave a commit to the batch, as they do with a replay.
    tag = CommitProperties(custom_metadata={"userMetadata": json.dumps({"cause": "replay"})})
    changed = events.update(updates={mission.column: mission.misread}, predicate=misread, commit_properties=tag)
    places = {row[PARTITION]: (row[f"{OFFSET}_min"], row[f"{OFFSET}_max"] + 1) for row in edges}
    return int(changed["num_updated_rows"]), places


def _change_definition(settings: Settings, domain: str, mission: Mission, day: date) -> None:
    """Edits a declaration, plans and applies the change, and takes both back."""
    file = project().tables / f"{mission.table.replace('.', '/')}.py"
    with _edited(file, mission.before, mission.after):
        with step(f"Plan {mission.table}: {mission.before} -> {mission.after}"):
            planned = _run(settings, "plan", domain, "--why", "the demo", "--json", exit_code=1)
        tables = ", ".join(change["table"] for change in planned["plan"]["changes"])
        out.print(f"  {planned['changed']:,} rows would change, of {tables}; nothing has yet.")
        with step("Apply the plan: publish the rows, restart the stream"):
            outcomes = _run(settings, "apply", planned["plan"]["id"], "--json")
    run = next(outcome["run"] for outcome in outcomes if outcome["table"] == mission.table)
    with step("Take it back: roll back the run, restart the stream"):
        _run(settings, "rollback", mission.table, "--run", run, "--json")
        _run(settings, "up", domain)


@contextmanager
def _edited(file: Path, before: str, after: str) -> Iterator[None]:
    """Has a file say something else meanwhile.

    Raises:
        ProcessFailed: it does not say once what is to be replaced.
    """
    text = file.read_text()
    if text.count(before) != 1:
        raise ProcessFailed(
            f"{file}: expected {before!r} once.", hint="Undo your changes, or leave out the step `plan`."
        )
    file.write_text(text.replace(before, after))
    try:
        yield
    finally:
        file.write_text(text)


def _backfill(settings: Settings, domain: str, mission: Mission, day: date) -> None:
    """Recomputes the tables of a domain, which changes nothing, since all is right."""
    with step(f"Recompute all rows of the tables of {domain}"):
        outcomes = _run(settings, "backfill", domain, "--json")
    if changed := sum(int(outcome[kind]) for outcome in outcomes for kind in ("inserted", "updated", "deleted")):
        raise ProcessFailed(f"The backfill of {domain} changed {changed} rows, which were right.")
    out.print(f"  {sum(int(outcome['compared'] or 0) for outcome in outcomes):,} rows compared, none differs.")


STEPS: Mapping[str, Callable[[Settings, str, Mission, date], None]] = {
    "replay": _replay,
    "plan": _change_definition,
    "backfill": _backfill,
}
"""What can be chosen, in the order in which it is shown."""


def _run(settings: Settings, *arguments: str, exit_code: int = 0) -> Any:
    """Runs `twofold ARGUMENTS` and returns what it printed as JSON.

    Raises:
        ProcessFailed: it ended with another exit code.
    """
    ran = run_command(*arguments, settings=settings)
    if ran.code != exit_code:
        raise ProcessFailed(f"{COMMAND} {' '.join(arguments)} ended with {ran.code}:\n{ran.text}")
    return ran.document
