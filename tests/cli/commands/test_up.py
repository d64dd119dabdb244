"""What `up` reports of streams that fail while all others run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.commands.platform_commands import _failed
from infra.process.supervisor import ProcessState
from infra.settings import Settings
from streaming.progress import Progress, read, write
from tests.plant import plant


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
