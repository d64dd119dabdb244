"""What `up` reports of streams that fail while all others run."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.platform_start import _failed
from infra.chosen_domains import choose_domains
from infra.process.supervisor import ProcessState
from infra.settings import Settings
from streaming.progress import Progress, read, write
from tests.cli.conftest import Cli
from tests.plant import plant


def test_an_unknown_domain_is_refused_before_anything_is_chosen(cli: Cli, home: Path) -> None:
    ran = cli("up", "shop", "flihgts")
    assert (ran.code, ran.err) == (2, "Error: There is no domain 'flihgts'.\nHint: The domains are flights, shop.\n")
    assert not home.exists()


def test_status_is_of_what_runs_and_names_what_does_not(cli: Cli, home: Path) -> None:
    choose_domains(Settings(home=home), ["shop"])
    ran = cli("status")
    assert "shop.carts" in ran.out
    assert ran.out.endswith("Not run: flights. `./twofold up shop flights` runs all.\n")
    found = json.loads(cli("status", "--json").out)
    assert {state["name"].partition(".")[0] for state in (*found["topics"], *found["tables"])} == {"shop"}


def test_an_error_from_before_the_driver_started_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, registry, now = Settings(home=tmp_path / "home"), plant(tmp_path / "declared"), datetime.now(UTC)
    driver = ProcessState(name="stream-plant", state="RUNNING", pid=7, uptime_s=60.0, starts=1, detail="")
    monkeypatch.setattr("infra.process.supervisor.state", lambda _: [driver])
    for query, age_s in {"hours": 5, "kept": 300, "newest": None, "gone": 5}.items():
        failed_at = None if age_s is None else now - timedelta(seconds=age_s)
        error = "" if age_s is None else f"fails at {query}"
        write(settings, Progress(domain="plant", query=query, error=error, failed_at=failed_at))
    assert [p.failed_at is None for p in read(settings)] == [False, False, False, True]
    assert [(p.query, p.error) for p in _failed(settings, registry, "plant")] == [("hours", "fails at hours")]
    monkeypatch.setattr("infra.process.supervisor.state", lambda _: [])
    assert _failed(settings, registry, "plant") == []
