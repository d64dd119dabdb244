"""PostgreSQL and Kafka Connect start only where a topic captures a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.tables.declared import written
from twofold.cli import capture_start
from twofold.infra.process.server_ports import server_ports
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load

FILES = {
    "bank/people.py": """\
    \"\"\"Changes of the people.\"\"\"
    from twofold import changes_of

    TOPIC = changes_of("public.people", columns={"id": "long"}, primary_key=["id"])
    """
}


def test_nothing_is_started_without_a_captured_table(settings: Settings, tmp_path: Path) -> None:
    registry = load().restricted_to(["flights"])
    assert not capture_start.captures_tables(registry)
    assert capture_start.capture_programs(settings, registry) == []
    capture_start.ensure_captures(settings, registry)
    assert not settings.home.exists()


def test_a_captured_table_needs_both_servers_or_a_database_of_yours(tmp_path: Path) -> None:
    registry = load(written(tmp_path / "tables", FILES))
    yours = Settings(home=tmp_path / "home", database="postgresql://me:secret@db/shop")
    assert [program.name for program in capture_start.capture_programs(yours, registry)] == ["connect"]


def test_captures_need_a_port_for_each_server_that_is_ours(settings: Settings) -> None:
    def wanted(settings: Settings) -> list[str]:
        return [port.setting for port in server_ports(settings, airflow=False, spark=False, captures=True)]

    broker = ["TWOFOLD_KAFKA_PORT", "TWOFOLD_CONTROLLER_PORT"]
    assert wanted(settings) == [*broker, "TWOFOLD_DATABASE_PORT", "TWOFOLD_CONNECT_PORT"]
    yours = replace(settings, database="postgresql://me:secret@db/shop", bootstrap="broker:9092")
    assert wanted(yours) == ["TWOFOLD_CONNECT_PORT"]
    assert {port.program for port in server_ports(settings)} == {"broker", "airflow-api-server", "spark"}
