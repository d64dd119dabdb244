"""A new user has a wheel, Python, Java and an empty home: a project of their own runs, and so does the demo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers import wait_until
from tests.test_wheel import build

pytestmark = [pytest.mark.prove, pytest.mark.platform]
LONGEST_S = 900
OTHERS = ("tables", "batch", "infra")
"""Packages of others, by names that are rooms here."""


@dataclass(frozen=True)
class User:
    """A user whose home is empty, with an environment into which the wheel is installed."""

    home: Path

    def run(self, folder: Path, *command: str) -> str:
        """Runs a command of the environment, which of this process has Java and the network, and prints its time."""
        java = str(Path(str(shutil.which("java"))).parent)
        ours = ("TWOFOLD_", "PYTHON", "PYTEST", "VIRTUAL_ENV", "XDG_")
        variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
            "HOME": str(self.home),
            "PATH": os.pathsep.join([str(self.home / "venv" / "bin"), java, "/usr/bin", "/bin"]),
            "COLUMNS": "80",
        }
        began = time.monotonic()
        ran = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        print(f"{time.monotonic() - began:6.1f} s  {' '.join(command)}")
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def install(self, *requirements: str) -> None:
        uv = [sys.executable, "-m", "uv"]
        python = self.home / "venv" / "bin" / "python"
        self.run(self.home, *uv, "pip", "install", "--quiet", "--python", str(python), *requirements)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("dist")
    build(made, "--wheel").close()
    return next(made.glob("*.whl"))


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> User:
    new = User(tmp_path_factory.mktemp("user"))
    new.run(new.home, sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, "venv")
    new.install(f"{wheel}[platform]", "pytest")
    [packages] = (new.home / "venv" / "lib").glob("python3*/site-packages")
    for name in OTHERS:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("OWN = True\n")
    return new


def test_a_project_of_ones_own_runs_from_a_wheel(user: User) -> None:
    """Runs the commands that `init` names, each from another folder of the project."""
    began = time.monotonic()
    user.run(user.home, "twofold", "init", "mine")
    project = user.home / "mine"
    tables = project / "tables" / "cafe"
    assert "without a mistake" in user.run(tables, "twofold", "check", "--strict")
    assert "3 passed" in user.run(project, "pytest", "-q")
    try:
        user.run(tables, "twofold", "up")
        user.run(project, "twofold", "send", "cafe.orders", "samples/orders.jsonl")

        def amounts() -> list[float]:
            answer = user.run(tables, "twofold", "sql", "--json", "SELECT amount FROM cafe.sales_by_hour ORDER BY shop")
            return [row["amount"] for row in json.loads(answer)]

        wait_until(lambda: amounts() == [7.5, 5.0], timeout_s=120)
        print(f"{time.monotonic() - began:6.1f} s  from `init` to rows that are live")
        user.run(project / "tests", "twofold", "reconcile", "--verify")
        user.run(project, "twofold", "doctor")
    finally:
        user.run(project / "schemas", "twofold", "down")
    user.run(
        user.home, "python", "-c", f"import {', '.join(OTHERS)}; assert {' and '.join(f'{n}.OWN' for n in OTHERS)}"
    )


def test_the_demo_runs_from_a_wheel(user: User, wheel: Path) -> None:
    """Writes it to a folder, from which its user goes on."""
    user.install(f"{wheel}[demo]")
    place = user.home / "elsewhere"
    place.mkdir()
    try:
        shown = user.run(place, "twofold", "demo", "flights", "--days", "2", "--seconds", "5", "--steps", "none")
        assert "cd twofold-demo" in shown
        answer = user.run(
            place / "twofold-demo", "twofold", "sql", "--json", "SELECT count(*) AS n FROM flights.flights"
        )
        assert json.loads(answer)[0]["n"] > 1_000
        user.run(place / "twofold-demo" / "tables", "twofold", "check", "--strict", "--quick")
    finally:
        if (place / "twofold-demo").exists():
            user.run(place / "twofold-demo", "twofold", "down")
