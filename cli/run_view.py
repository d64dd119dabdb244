"""Runs rewrites of history at once or as a plan, and prints results and plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twofold.cli.console import make_table, out, print_json
from twofold.infra import COMMAND
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import shown, shown_duration

if TYPE_CHECKING:
    from twofold.batch.ledgers.run_result import Cause, RunResult
    from twofold.batch.plan.plan import Plan
    from twofold.batch.plan.planning import Rewrite

Preview = Annotated[
    bool, typer.Option("--preview", help="Publish nothing: show what would change, and keep it as a plan.")
]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="With --preview: the reason, for the plan.")]


@dataclass(frozen=True)
class RewriteMode:
    """The mode of a rewrite of history, at once or as a plan, and of its output."""

    preview: bool
    why: str
    as_json: bool


def run_rewrite(
    settings: Settings, names: Sequence[str], rewrite: Rewrite, cause: Cause, command: Sequence[str], mode: RewriteMode
) -> None:
    """Rewrites the history of these tables, or this topic, and prints the changes; or makes a plan and prints it.

    Args:
        names: full names.
        command: the command that does it at once, as arguments of `twofold`.
    """
    from twofold.tables.refresh.open_platform import opened

    if mode.preview:
        show_plan(plan_rewrite(settings, names, rewrite, cause, command, mode.why), mode.as_json)
        return
    from twofold.batch.plan.publisher import rewrite_now

    with opened(settings, command[0], _domains(names)) as platform:
        outcomes = rewrite_now(platform, names, rewrite, cause=cause, command=command, who=getuser())
    print_outcomes(outcomes, mode.as_json)


def plan_rewrite(
    settings: Settings, names: Sequence[str], rewrite: Rewrite, cause: Cause, command: Sequence[str], why: str
) -> Plan:
    """Makes the plan of a rewrite that `run_rewrite` would run at once."""
    from twofold.batch.plan.plan import Plans
    from twofold.batch.plan.planning import make_plan
    from twofold.tables.refresh.open_platform import opened

    with opened(settings, command[0], _domains(names)) as platform:
        plan = make_plan(platform, names, rewrite, cause=cause, command=command, who=getuser())
    return Plans(settings).save(dataclasses.replace(plan, why=why)) if why else plan


def changed_domains(plan: Plan) -> list[str]:
    """Returns the domains of the tables that a plan changes."""
    return _domains([change.table for change in plan.changes])


def _domains(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def show_plan(plan: Plan, as_json: bool) -> None:
    """Prints the plan, and the command that publishes it."""
    if as_json:
        print_json(plan_document(plan))
    else:
        from twofold.batch.plan.plan import Plans

        print_plan(plan, whole=False)
        plans = Plans(Settings.from_environment())
        for change in plan.changes:
            out.print(f'All its rows: {COMMAND} sql "{plans.query(plan, change)}"', soft_wrap=True, markup=False)
        print_published(plan, [])


def publish_now(settings: Settings, plan: Plan, approved_by: str | None, because: str = "") -> list[RunResult]:
    """Publishes a plan."""
    from twofold.batch.plan.publisher import publish_plan
    from twofold.tables.refresh.open_platform import opened

    with opened(settings, "publish", changed_domains(plan)) as platform:
        return publish_plan(platform, plan.id, approved_by or getuser(), because)


def print_published(plan: Plan, outcomes: Sequence[RunResult]) -> None:
    """Prints the changes of a publication, and the command that takes them back."""
    if outcomes:
        print_outcomes(outcomes, as_json=False)
        from twofold.infra.delta.table_copy import KEPT_DAYS

        out.print(f"To take it back, for {KEPT_DAYS} days:")
        out.print(f"{COMMAND} rollback {outcomes[0].table} --run {plan.run}", soft_wrap=True)
    elif plan.changes or plan.notes:
        if plan.sample:
            out.print(f"Nothing was changed. It is of {plan.sample} alone; without --sample it can be applied.")
            return
        command = "apply" if plan.command[0] == "plan" else "publish"
        out.print(f"Nothing was changed. To publish it, until {shown(plan.expires_at)} UTC:")
        out.print(f"{COMMAND} {command} {plan.id}", soft_wrap=True)


def plan_document(plan: Plan) -> dict[str, object]:
    """Returns a plan for JSON output, with its text in Markdown."""
    from twofold.batch.plan.plan_text import markdown
    from twofold.batch.plan.steps import progress

    state = plan.state(datetime.now(UTC))
    steps = [{"step": step, "done": is_done} for step, is_done in progress(plan)]
    return {"plan": plan, "state": state, "changed": plan.changed, "steps": steps, "markdown": markdown(plan)}


def print_plan(plan: Plan, *, whole: bool = True) -> None:
    """Prints the changes of a plan, table by table.

    Args:
        whole: also details of the tables below, and all examples.
    """
    from twofold.batch.plan.plan_text import heading, impact, sections

    out.print(f"[bold]{escape(heading(plan))}[/]{escape(f': {plan.why}' if plan.why else '')}")
    for text in (*plan.notes, *impact(plan)):
        out.print(escape(text))
    shown_changes = [change for change in plan.changes if whole or not change.is_below]
    for change in shown_changes:
        for section in sections(change):
            out.print(f"\n[bold]{escape(f'{change.table}: {section.title.lower()}')}[/]")
            rows = [[escape(cell) for cell in row] for row in section.rows[: None if whole else _FIRST]]
            right = [c for c in section.columns if c in _NUMBERS]
            out.print(make_table(None, section.columns, rows, right=right))
            if note := section.note(rows):
                out.print(f"[dim]{escape(note)}[/]")
    if not plan.changes:
        out.print(f"Nothing would change; {plan.compared:,} rows were compared with their recomputation.")
    elif not whole:
        out.print(f"\nAll of it: {COMMAND} plans {plan.id}", soft_wrap=True)


def print_steps(plan: Plan) -> None:
    """Prints the steps that publish a plan, and which of them have ended."""
    from twofold.batch.plan.steps import progress

    if plan.changes:
        out.print("\n[bold]steps of its publication[/]")
    for number, (step, is_done) in enumerate(progress(plan), 1):
        out.print(f"{'[green]✓[/]' if is_done else ' '} {number}. {escape(step)}", soft_wrap=True)


_FIRST = 8  # rows of a section
_NUMBERS = ("before", "after", "added", "removed", "changed", "rows")
MEANINGS = {
    "touched": "rows of the inputs that arrived late, were replayed or were corrected since the last reconcile",
    "scopes": "groups of rows that depend on them, recomputed and compared",
    "pending": "scopes with rows that the stream still revises; they are processed again once these are closed",
    "unexplained": "rows that differ from their recomputation though no such row explains it",
}


def print_outcomes(outcomes: Sequence[RunResult], as_json: bool) -> None:
    if as_json:
        print_json([dataclasses.asdict(outcome) | {"changed": outcome.changed} for outcome in outcomes])
        return
    if not outcomes:
        out.print("Nothing to do.")
        return
    counts = ["touched", "scopes", "pending", "inserted", "updated", "deleted", "unexplained"]
    columns = ["table", "cause", *counts, "version", "took"]
    rows = [
        (o.table, o.cause, *(getattr(o, count) for count in counts), _versions(o), shown_duration(o.seconds))
        for o in outcomes
    ]
    out.print(make_table(None, columns, rows, right=columns[2:]))
    for count, meaning in MEANINGS.items():
        if any(getattr(o, count) for o in outcomes):
            out.print(f"[dim]{count}: {meaning}[/]")
    for o in outcomes:
        if o.waits_until:
            out.print(
                f"{o.table}: what is pending waits until the stream's watermark has passed {shown(o.waits_until)}."
            )
    for o in outcomes:
        for line in o.corrected:
            out.print(f"[dim]{o.table}[/] {escape(line)}", soft_wrap=True)
    for o in (outcome for outcome in outcomes if outcome.left):
        left = f"{o.table}: {o.left:,} rows were changed meanwhile by others, and stay as they are"
        out.print(f"[yellow]![/] {left}; the same command shows with --preview what differs now.", soft_wrap=True)
    changed = sum(outcome.changed for outcome in outcomes)
    compared = [outcome.compared for outcome in outcomes if outcome.compared is not None]
    scopes = sum(outcome.scopes for outcome in outcomes)
    if compared:
        out.print(f"{sum(compared):,} rows were compared with their recomputation.")
    elif scopes and any(outcome.cause != "rollback" for outcome in outcomes):
        out.print(f"{scopes:,} scopes were compared with their recomputation; --verify compares all rows.")
    if changed:
        out.print(f"{changed:,} rows changed.")
    elif any(outcome.cause == "rollback" for outcome in outcomes):
        out.print("Taken back; no row was to be changed.")
    elif compared or scopes:
        out.print("Nothing changed: what was compared was right.")
    else:
        out.print("Nothing to correct: no late record, and no input that changed. --verify compares all rows.")


def _versions(outcome: RunResult) -> str | int | None:
    if outcome.version_before == outcome.version_after:
        return outcome.version_after
    return f"{outcome.version_before} → {outcome.version_after}"
