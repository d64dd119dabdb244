"""Commands that list, publish and discard plans."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape

from cli.commands.run_commands import ApprovedBy
from cli.console import Json, make_table, out, print_json, shown
from cli.run_view import plan_document, print_outcomes, print_plan, print_published, publish_now
from infra.settings import Settings

PlanName = Annotated[str, typer.Argument(metavar="PLAN", help="The id of a plan, or how it begins.")]


def plans(
    plan: Annotated[str | None, typer.Argument(metavar="[PLAN]", help="Show this one; all are listed without.")] = None,
    as_json: Json = False,
) -> None:
    """List the kept plans of rewrites, newest first, or show what one of them changes."""
    from batch.rewrite.plan import Plans
    from batch.rewrite.plan_text import heading

    kept = Plans(Settings.from_environment())
    if plan is not None:
        found = kept.find(plan)
        if as_json:
            print_json(plan_document(found))
            return
        print_plan(found)
        out.print(f"{found.id}: {found.state(datetime.now(UTC))}")
        return
    now = datetime.now(UTC)
    if as_json:
        print_json([{"id": one.id, "state": one.state(now), "changed": one.changed} for one in kept.all()])
        return
    rows = [
        (one.id, one.state(now), escape(heading(one)), one.changed, shown(one.expires_at), escape(one.why))
        for one in kept.all()
    ]
    if not rows:
        out.print("No plans. --preview makes one: ./twofold backfill TABLE --preview")
        return
    columns = ["plan", "state", "of", "rows", "expires", "why"]
    out.print(make_table(None, columns, rows, right=["rows"], spare=["why", "expires", "of"]))


def publish(plan: PlanName, approved_by: ApprovedBy = None, as_json: Json = False) -> None:
    """Publish exactly the rows that PLAN has shown, each table in one commit; `rollback` takes them back.

    Refused where code or rows that the plan was made from have changed since. Cut short, it goes on when it is called
    again.
    """
    from batch.rewrite.plan import Plans

    settings = Settings.from_environment()
    found = Plans(settings).find(plan)
    outcomes = publish_now(settings, found, approved_by)
    if as_json:
        print_outcomes(outcomes, as_json)
    else:
        print_published(found, outcomes)


def discard(plan: PlanName, as_json: Json = False) -> None:
    """Let PLAN never be published; what it would have changed can still be looked at for a month."""
    from batch.rewrite.plan import Plans

    kept = Plans(Settings.from_environment())
    found = kept.discard(kept.find(plan))
    if as_json:
        print_json(plan_document(found))
        return
    out.print(f"Discarded {escape(found.id)}.")
