"""Commands of plans."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from twofold.batch.plan import code_changes, code_plan, plan_difference
from twofold.batch.plan.plan import Plan, Plans
from twofold.cli import platform_start
from twofold.cli.commands import plan_commands
from twofold.infra.errors import PlanVoid
from twofold.infra.project.settings import Settings
from twofold.tables.refresh import open_platform


def plan(settings: Settings, name: str) -> Plan:
    now = datetime.now(UTC)
    until = now + timedelta(days=1)
    (settings.plans / name).mkdir(parents=True)
    return Plans(settings).save(
        Plan(id=name, cause="definition", command=["plan", "plant"], created_at=now, expires_at=until)
    )


@pytest.mark.parametrize("is_little", [True, False])
def test_apply_at_a_busy_table_restarts_its_streams_and_plans_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_little: bool
) -> None:
    """It asks if the new plan differs much; here nobody is there to answer."""
    approved, made, did = plan(settings, "definition-1-aa"), plan(settings, "definition-2-bb"), list[str]()

    def publish_now(_: Settings, chosen: Plan, by: str | None) -> list[Any]:
        did.append(chosen.id)
        if chosen is not made:
            raise PlanVoid("2 rows have changed since.", moved=2)
        return []

    monkeypatch.setattr(Settings, "from_environment", lambda: settings)
    monkeypatch.setattr(plan_commands, "publish_now", publish_now)
    monkeypatch.setattr(platform_start, "restart_streams", lambda *_, **__: did.append("restarted"))
    monkeypatch.setattr(open_platform, "opened", lambda *_: nullcontext(SimpleNamespace(registry=None)))
    monkeypatch.setattr(code_changes, "code_changes", lambda *_: [])
    monkeypatch.setattr(code_plan, "plan_code", lambda *_, **__: made)
    monkeypatch.setattr(plan_difference, "other_rows", lambda *_: {"plant.hours": 1})
    monkeypatch.setattr(plan_difference, "differs_little", lambda *_: is_little)
    monkeypatch.setattr(platform_start, "write_derived", lambda *_, **__: did.append("derived"))
    if is_little:
        plan_commands.apply(approved.id)
        assert did == [approved.id, "restarted", made.id, "restarted", "derived"]
        assert Plans(settings).find(approved.id).discarded_at is not None
    else:
        with pytest.raises(PlanVoid, match=r"definition-2-bb differs from the approved definition-1-aa in 1 rows"):
            plan_commands.apply(approved.id)
        assert did == [approved.id, "restarted"]
        assert Plans(settings).find(approved.id).discarded_at is None
    assert "in 1 rows of plant.hours" in " ".join(capsys.readouterr().out.split())


def test_apply_does_not_plan_again_where_the_code_has_changed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish_now(*_: object) -> None:
        raise PlanVoid("the code of plant.hours has changed")

    monkeypatch.setattr(Settings, "from_environment", lambda: settings)
    monkeypatch.setattr(plan_commands, "publish_now", publish_now)
    monkeypatch.setattr(platform_start, "restart_streams", lambda *_, **__: pytest.fail("nothing is restarted"))
    with pytest.raises(PlanVoid, match=r"the code of plant\.hours has changed"):
        plan_commands.apply(plan(settings, "definition-1-aa").id)
