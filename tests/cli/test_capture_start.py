"""PostgreSQL and Kafka Connect start only where a topic captures a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import capture_start
from infra.errors import PortTaken
from infra.process import ports
from infra.settings import Settings
from tables.engine.declarations.registry import load
from tests.tables.declared import written

FILES = {
    "bank/people.py": """\
    \"\"\"Changes of the people.\"\"\"
    from tables import changes_of

    TOPIC = changes_of("public.people", columns={"id": "long"}, primary_key=["id"])
    """
}


def test_nothing_is_started_without_a_captured_table(settings: Settings, tmp_path: Path) -> None:
    registry = load()
    assert not capture_start.captures_tables(registry)
    assert capture_start.capture_programs(settings, registry) == []
    capture_start.ensure_captures(settings, registry)
    assert not settings.home.exists()


def test_a_captured_table_needs_both_servers_or_a_database_of_yours(tmp_path: Path) -> None:
    registry = load(written(tmp_path / "tables", FILES))
    yours = Settings(home=tmp_path / "home", database="postgresql://me:secret@db/shop")
    assert [program.name for program in capture_start.capture_programs(yours, registry)] == ["connect"]


def test_a_port_that_another_process_holds_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: port != settings.connect_port)
    with pytest.raises(PortTaken, match="Kafka Connect"):
        capture_start.require_ports(settings)
