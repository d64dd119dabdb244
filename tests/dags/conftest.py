"""Airflow without servers, and fakes for commands of `twofold`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Airflow reads its settings when first imported: they must be those of an empty home by then, as must be ours."""
    home = tmp_path_factory.mktemp("airflow")
    patch = pytest.MonkeyPatch()
    patch.setenv("TWOFOLD_HOME", str(home / "twofold"))
    patch.setenv("AIRFLOW_HOME", str(home))
    patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    patch.setenv("AIRFLOW__CORE__UNIT_TEST_MODE", "False")
    return home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOFOLD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def stand_in(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a Python script do what `twofold` would do."""

    def use(script: str) -> None:
        file = tmp_path / "stand_in.py"
        file.write_text(script)
        program: Sequence[str] = (sys.executable, str(file))
        monkeypatch.setattr("twofold.dags.operators.command_operator.PROGRAM", program)

    return use
