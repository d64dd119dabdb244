"""Commands that list, publish and discard plans."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from twofold.cli.commands.run_commands import ApprovedBy
from twofold.cli.console import Json, make_table, out, print_json
from twofold.cli.run_view import (
    Why,
    changed_domains,
    plan_document,
    print_outcomes,
    print_plan,
    print_published,
    print_steps,
    publish_now,
    show_plan,
)
from twofold.infra import COMMAND
from twofold.infra.errors import PlanVoid
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import shown

if TYPE_CHECKING:
    from twofold.batch.ledgers.run_result import RunResult
    from twofold.batch.plan.plan import Plan

PlanName = Annotated[str, typer.Argument(metavar="PLAN", help="The id of a plan, or how it begins.")]


def plan(
    domains: Annotated[
        list[str] | None, typer.Argument(metavar="[DOMAIN]...", help="All domains that run, when none is named.")
    ] = None,
    sample: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Only the newest rows: '3 days'. Such a plan is only looked at.")
    ] = None,
    why: Why = "",
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print it for a merge request.")] = False,
    as_json: Json = False,
) -> None:
    """Compare the declarations of this project with the live tables, and compute the rows that would change.

    New and changed tables are computed in a copy, and all tables below them; nothing of the live tables is touched.
    Exit code 0: nothing would change; 1: something would; 2: a declaration has a mistake.
    """
    settings = Settings.from_environment()
    from twofold.batch.plan.code_changes import code_changes
    from twofold.infra.delta.lake import Lake
    from twofold.infra.duration import parse_duration
    from twofold.tables.declare.registry import load, running_domains

    registry = load()
    chosen = [registry.require_domain(name) for name in domains or running_domains(settings) or registry.domains]
    registry.require_sound(chosen)
    span = timedelta(milliseconds=parse_duration(sample, "--sample")) if sample else None
    changes = list(code_changes(Lake(settings), registry, chosen))
    if not changes:
        if as_json:
            print_json({"plan": None, "changed": 0, "markdown": _NOTHING})
        else:
            out.print(_NOTHING)
        return
    # What computes a plan takes a second to import.
    from twofold.batch.plan.code_plan import plan_code
    from twofold.tables.refresh.open_platform import opened

    with opened(settings, "plan", []) as platform:
        made = plan_code(platform, changes, who=getuser(), why=why, sample=span)
    if as_markdown:
        from twofold.batch.plan.plan_text import markdown

        out.print(markdown(made), markup=False, soft_wrap=True)
    else:
        show_plan(made, as_json)
    raise typer.Exit(1)


_NOTHING = "The declarations are those of the live tables: nothing would change."


def apply(plan: PlanName, approved_by: ApprovedBy = None, as_json: Json = False) -> None:
    """Publish a plan of code changes, then restart the streams of its domains, so that they run the new code.

    If streams have changed its rows since, they are restarted first, and the plan is made again. The number of rows in
    which it differs from PLAN is printed; if that is large, you are asked. The views for analysts are made again, too.
    """
    from twofold.batch.plan.plan import Plans
    from twofold.cli.platform_start import restart_streams, write_derived
    from twofold.tables.declare.registry import running

    settings = Settings.from_environment()
    kept = Plans(settings).find(plan)
    try:
        outcomes = publish_now(settings, kept, approved_by)
    except PlanVoid as void:
        if kept.command[0] != "plan" or "moved" not in void.facts:
            raise
        kept = _made_again(settings, kept, void.message, as_json)
        outcomes = publish_now(settings, kept, approved_by)
    # A plan of code names its domains, even if no row changes.
    domains = kept.command[1:] if kept.command[0] == "plan" else changed_domains(kept)
    restart_streams(settings, domains, quietly=as_json)
    write_derived(settings, running(settings), quietly=as_json)
    _print(kept, outcomes, as_json)


def _made_again(settings: Settings, approved: Plan, why: str, as_json: bool) -> Plan:
    """Makes a plan again after its streams were restarted: they leave tables of another definition alone.

    Raises:
        PlanVoid: it changes much otherwise than the approved one, and no person is there to say yes, or one says no.
    """
    from twofold.batch.plan.code_changes import code_changes
    from twofold.batch.plan.code_plan import plan_code
    from twofold.batch.plan.plan import Plans
    from twofold.batch.plan.plan_difference import differs_little, other_rows
    from twofold.cli.platform_start import restart_streams
    from twofold.infra.delta.lake import Lake
    from twofold.tables.refresh.open_platform import opened

    domains = approved.command[1:]
    if not as_json:
        out.print(f"{escape(why)} It is made again, while the streams have the new code.")
    restart_streams(settings, domains, quietly=as_json)
    with opened(settings, "plan", []) as platform:
        changes = list(code_changes(Lake(settings), platform.registry, domains))
        made = plan_code(platform, changes, who=approved.who, why=approved.why, sample=None)
        others = other_rows(platform, approved, made)
        is_little = differs_little(platform, approved, others)
    rows = ", ".join(f"{count:,} rows of {name}" for name, count in others.items()) or "no row"
    said = f"The plan {made.id} differs from the approved {approved.id} in {rows}."
    if not as_json:
        out.print(escape(said))
    if not is_little and (as_json or not sys.stdin.isatty() or not typer.confirm("Publish it?")):
        hint = f"`{COMMAND} plans {made.id}` shows it. `{COMMAND} apply {made.id}` publishes it; soon, as streams wait."
        raise PlanVoid(f"{said} Nothing was changed.", hint=hint)
    Plans(settings).discard(approved)
    return made


def plans(
    plan: Annotated[str | None, typer.Argument(metavar="[PLAN]", help="Show this one; all are listed without.")] = None,
    as_json: Json = False,
) -> None:
    """List the kept plans of rewrites, newest first, or show what one of them changes."""
    from twofold.batch.plan.plan import Plans
    from twofold.batch.plan.plan_text import heading

    kept = Plans(Settings.from_environment())
    if plan is not None:
        chosen = kept.find(plan)
        if as_json:
            print_json(plan_document(chosen))
            return
        print_plan(chosen)
        print_steps(chosen)
        out.print(f"\n{chosen.id}: {chosen.state(datetime.now(UTC))}")
        return
    now = datetime.now(UTC)
    if as_json:
        print_json([{"id": plan.id, "state": plan.state(now), "changed": plan.changed} for plan in kept.all()])
        return
    rows = [
        (plan.id, plan.state(now), escape(heading(plan)), plan.changed, shown(plan.expires_at), escape(plan.why))
        for plan in kept.all()
    ]
    if not rows:
        out.print(f"No plans. --preview makes one: {COMMAND} backfill TABLE --preview")
        return
    columns = ["plan", "state", "of", "rows", "expires", "why"]
    out.print(make_table(None, columns, rows, right=["rows"], spare=["why", "expires", "of"]))


def publish(
    plan: PlanName,
    approved_by: ApprovedBy = None,
    because: Annotated[str, typer.Option(metavar="TEXT", help="Why it was approved, for the plan.")] = "",
    as_json: Json = False,
) -> None:
    """Publish exactly the rows that PLAN has shown, each table in one commit; `rollback` takes them back.

    Refused if code or rows that the plan was made from have changed since. An interrupted publication continues when it
    is called again.
    """
    from twofold.batch.plan.plan import Plans

    settings = Settings.from_environment()
    kept = Plans(settings).find(plan)
    outcomes = publish_now(settings, kept, approved_by, because)
    _print(kept, outcomes, as_json)


def _print(plan: Plan, outcomes: Sequence[RunResult], as_json: bool) -> None:
    if as_json:
        print_outcomes(outcomes, as_json)
    elif outcomes:
        print_published(plan, outcomes)
    else:
        out.print("No row was to be changed.")


def discard(plan: PlanName, as_json: Json = False) -> None:
    """Discard PLAN, so that it is never published; its changes can still be viewed for a month.

    If its publication was interrupted, rows that were published stay.
    """
    from twofold.batch.plan.plan import Plans
    from twofold.batch.plan.steps import progress

    kept = Plans(Settings.from_environment())
    chosen = kept.discard(kept.find(plan))
    if as_json:
        print_json(plan_document(chosen))
        return
    after = f" after {chosen.done} of {len(progress(chosen))} steps" if chosen.begun_at else ""
    out.print(f"Discarded {escape(chosen.id)}{after}.")
    if chosen.begun_at:
        for change in chosen.changes:
            out.print(f"To take back what it has changed: {COMMAND} rollback {change.table} --run {chosen.run}")
