"""A domain in the place of a table, for the commands that accept one."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.plant import plant
from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.plan.plan import Plan
from twofold.cli.commands.as_of_command import _before
from twofold.infra.errors import BadArgument
from twofold.tables.declare import registry
from twofold.tables.declare.table import Table

TABLES = ["plant.hours", "plant.kept", "plant.newest"]


@pytest.fixture(autouse=True)
def domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> registry.Registry:
    declared = plant(tmp_path / "declared")
    monkeypatch.setattr(registry, "load", lambda: declared)
    assert sorted(declared.tables) == TABLES
    return declared


def test_a_backfill_of_a_domain_recomputes_each_table(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: object, table: Table, interval: object) -> RunResult:
        assert interval is None
        return RunResult(table=table.full_name, cause="backfill", run="b-1")

    def rewrite_now(live: Any, names: object, rewrite: Any, **_: object) -> list[RunResult]:
        return list(rewrite(live))

    monkeypatch.setattr("twofold.batch.rewrite.backfill.recompute", run)
    monkeypatch.setattr("twofold.batch.plan.publisher.rewrite_now", rewrite_now)
    monkeypatch.setattr("twofold.tables.refresh.open_platform.opened", lambda *_: nullcontext())
    assert sorted(o["table"] for o in cli("backfill", "plant", "--json").document) == TABLES
    assert [o["table"] for o in cli("backfill", "hours", "--json").document] == ["plant.hours"]


def test_a_rebuild_of_a_domain_plans_each_table(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(_: object, table: str, *__: object, fresh: bool) -> Plan:
        assert fresh
        now = datetime.now(UTC)
        return Plan(id=table, cause="rebuild", command=["rebuild", table], created_at=now, expires_at=now)

    monkeypatch.setattr("twofold.batch.plan.rebuild_table.plan_rebuild", planned)
    found = cli("rebuild", "plant", "--fresh", "--json").document
    assert sorted(one["plan"]["id"] for one in found) == TABLES
    assert cli("rebuild", "hours", "--fresh", "--json").document["plan"]["id"] == "plant.hours"


def test_late_records_of_a_domain_need_a_table_with_rows(cli: Cli) -> None:
    ran = cli("late", "plant")
    assert (ran.code, "./twofold up" in ran.err) == (2, True)


def test_one_position_holds_for_each_topic_of_a_domain(domain: registry.Registry) -> None:
    tables = domain.chosen(["plant"])
    assert list(_before(["2013-01-05"], tables, domain)) == ["plant.readings"]
    assert _before(["readings@0:7"], tables, domain) == {"plant.readings": {0: 7}}
    with pytest.raises(BadArgument, match="expected TOPIC@OFFSETS"):
        _before(["readings@0:7", "2013-01-05"], tables, domain)


@pytest.mark.parametrize("command", [["why", "plant", "sensor=a"], ["try", "plant"], ["rollback", "plant"]])
def test_a_command_about_one_table_names_those_of_a_domain(cli: Cli, command: list[str]) -> None:
    ran = cli(*command)
    assert ran.code == 2
    assert "'plant' is a domain; expected one table." in ran.err
    assert "plant.hours, plant.kept, plant.newest" in ran.err
