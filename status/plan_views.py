"""Plans of rewrites as people read them: their state, what they change, and the commands about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from twofold.batch.plan.plan import Plan, Plans
from twofold.batch.plan.plan_text import Section, heading, impact, sections
from twofold.batch.plan.steps import progress
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings

MOST = 200


@dataclass(frozen=True, kw_only=True)
class PlanView:
    """A plan in words, those of `twofold plans`.

    Attributes:
        state: open, begun, published, discarded, expired, sample.
        sentences: for each table how many rows change, tables below last.
        tables: name -> its sections, most important first.
        steps: of its publication, and whether each has ended.
        commands: that can be run about it now.
    """

    plan: Plan
    state: str
    heading: str
    sentences: Sequence[str]
    tables: Sequence[tuple[str, Sequence[Section]]]
    steps: Sequence[tuple[str, bool]]
    commands: Sequence[str]


def plan_views(settings: Settings, now: datetime) -> list[PlanView]:
    """Returns the kept plans: those that wait for a person first, then the newest."""
    views = [_view(plan, now) for plan in Plans(settings).all()[:MOST]]
    return sorted(views, key=lambda view: view.state not in ("open", "begun"))


def plan_view(settings: Settings, name: str, now: datetime) -> PlanView | None:
    """Returns the plan with this id or prefix of one, None if there is none."""
    try:
        return _view(Plans(settings).find(name), now)
    except BadArgument:
        return None


def _view(plan: Plan, now: datetime) -> PlanView:
    state = plan.state(now)
    return PlanView(
        plan=plan,
        state=state,
        heading=heading(plan),
        sentences=impact(plan),
        tables=[(change.table, list(sections(change))) for change in plan.changes],
        steps=list(progress(plan)),
        commands=_commands(plan, state),
    )


def _commands(plan: Plan, state: str) -> list[str]:
    if state in ("open", "begun"):
        return [f"{COMMAND} publish {plan.id}", f"{COMMAND} discard {plan.id}"]
    if state == "published":
        changed = [change.table for change in plan.changes if change.changed and not change.creates]
        return [f"{COMMAND} rollback {table} --run {plan.run}" for table in changed[:1]]
    return [plan.again.strip("`")]
