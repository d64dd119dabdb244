"""Homes and ports that no other test has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from twofold.infra.process import supervisor
from twofold.infra.process.ports import free_port as free_port
from twofold.infra.project.settings import Settings

Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """A home with nothing in it; whatever a test supervises there is stopped."""
    own = Settings(
        home=tmp_path / "home", kafka_port=free_port(), controller_port=free_port(), airflow_port=free_port()
    )
    yield own
    supervisor.stop(own)


@pytest.fixture
def eventually() -> Eventually:
    """Wait up to 20 s for a condition."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "the condition never held"
            time.sleep(0.05)

    return wait
