"""The command line on a home of its own, with small Delta tables where a test needs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from twofold.cli.__main__ import main


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Ran]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which nothing runs; its ports belong to nobody."""
    places = {"HOME": tmp_path / "home", "KAFKA_PORT": 1, "CONTROLLER_PORT": 2, "AIRFLOW_PORT": 3}
    for variable, value in places.items():
        monkeypatch.setenv(f"TWOFOLD_{variable}", str(value))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs one command in this process."""

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        said = capsys.readouterr()
        return Ran(int(ended.value.code or 0), said.out, said.err)

    return run


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.fixture
def lake(home: Path) -> Path:
    """Two domains that share a bare name: `flights.hours`, `flights.delays`, `rail.delays`."""
    root = home / "lake"
    hours = {
        "origin": ["EWR", "JFK", "JFK"],
        "hour": pa.array([at("2013-01-01T10:00"), at("2013-01-01T10:00"), None], pa.timestamp("us", tz="UTC")),
        "mean_delay_min": [1.5, -2.0, None],
        "flights": [2, 1, 0],
    }
    write_deltalake(root / "flights" / "hours", pa.table(hours))
    write_deltalake(root / "flights" / "delays", pa.table({"flight": [1, 2]}))
    write_deltalake(root / "rail" / "delays", pa.table({"train": [7]}))
    return root
