"""The supervised PostgreSQL starts wherever the platform's home is."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from infra.capture import postgres_server
from infra.settings import Settings
from tests.infra.conftest import free_port


def test_an_address_of_yours_is_read_and_what_it_lacks_is_the_usual(settings: Settings) -> None:
    def address(url: str) -> tuple[object, ...]:
        return postgres_server.address(replace(settings, database=url))

    assert address("postgresql://me:p%40ss@db:6543/shop") == ("db", 6543, "me", "p@ss", "shop")
    assert address("postgresql://db") == ("db", 5432, "twofold", "", "postgres")


@pytest.mark.platform
def test_a_database_runs_in_a_home_that_is_closed_to_others(settings: Settings, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    home = replace(settings, home=closed / "home", database_port=free_port())
    postgres_server.prepare(home)
    postgres_server.prepare(home)
    with subprocess.Popen(postgres_server.program(home).command) as server:
        try:
            postgres_server.wait_ready(home)
            assert postgres_server.query(home, "SHOW wal_level") == ["logical"]
        finally:
            server.send_signal(signal.SIGINT)
    assert server.returncode == 0
