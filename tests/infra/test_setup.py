"""`make setup` and `./twofold` on a machine that lacks something say so in one message."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.test_rooms import imports_of, modules_in

TOOLS = ("sh", "cmp", "dirname", "readlink", "awk", "cp")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing was set up, and a `bin` with the system's own tools only."""
    for name in (".ci/setup", "twofold", "requirements.txt", *(f"infra/{name}.py" for name in ("java", "errors"))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "infra" / "__init__.py").touch()
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return tmp_path


def run(checkout: Path, command: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(checkout / "bin")}
    return subprocess.run(
        [checkout / command], env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def fake_python(checkout: Path, version: str) -> None:
    """A python3 that knows its version and fails at everything else."""
    launcher = checkout / "bin" / "python3"
    launcher.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "Python {version}"\n')
    launcher.chmod(0o755)


def test_no_python_is_reported_once(checkout: Path) -> None:
    ran = run(checkout, ".ci/setup")

    assert ran.returncode == 1
    assert "Python 3.11 to 3.13 is needed; python3 is missing." in ran.stderr
    assert "Hint: install one of them" in ran.stderr


def test_a_python_that_is_too_old_is_named_with_its_version(checkout: Path) -> None:
    fake_python(checkout, "3.9.2")

    ran = run(checkout, ".ci/setup")

    assert ran.returncode == 1
    assert "Python 3.11 to 3.13 is needed; python3 is Python 3.9.2." in ran.stderr


def test_a_missing_java_is_reported_before_anything_is_installed(checkout: Path) -> None:
    launcher = checkout / "bin" / "python3"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    launcher.chmod(0o755)

    ran = run(checkout, ".ci/setup")

    assert ran.returncode == 1
    assert "Java 17 to 21 is needed" in ran.stderr
    assert not (checkout / ".venv").exists()


def pinned(file: str) -> dict[str, str]:
    """Package -> the line of a lock file that pins it."""
    lines = re.findall(r"^[\w.-]+==.*$", (ROOT / file).read_text("utf-8"), re.MULTILINE)
    return {line.split("==")[0]: line for line in lines}


def test_no_room_needs_a_package_that_only_tests_install() -> None:
    only_tests = set(pinned("requirements-dev.txt")) - set(pinned("requirements.txt"))
    owners = importlib.metadata.packages_distributions()
    imported = {module.split(".")[0] for path in modules_in() for module, _ in imports_of(path.read_text("utf-8"))}
    needed = {re.sub(r"[-_.]+", "-", owner).lower() for module in imported for owner in owners.get(module, ())}
    assert {"pytest", "ruff", "mypy", "moto"} <= only_tests
    assert {"pyspark", "duckdb"} <= needed
    assert needed & only_tests == {"pytest"}, "of the plugin alone, which pytest loads"


def test_both_lock_files_pin_the_same_versions() -> None:
    runtime, tests = pinned("requirements.txt"), pinned("requirements-dev.txt")
    assert {name: tests[name].split()[0] for name in tests if name in runtime} == {
        name: runtime[name].split()[0] for name in tests if name in runtime
    }


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_every_pinned_package_has_a_hash_and_no_address(file: str) -> None:
    blocks = re.split(r"^(?=[\w.-]+==)", (ROOT / file).read_text("utf-8"), flags=re.MULTILINE)
    assert len(blocks) > 20
    assert [block for block in blocks if block.strip() and ("--hash=sha256:" not in block or "://" in block)] == []


def test_twofold_says_how_to_set_up(checkout: Path) -> None:
    ran = run(checkout, "twofold")

    assert ran.returncode == 1
    assert f"Hint: run `make setup` in {checkout}." in ran.stderr


def test_make_lists_every_target_and_at_most_ten() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = next(line for line in makefile.splitlines() if line.startswith(".PHONY:")).split()[1:]
    targets.remove("help")

    shown = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert len(targets) <= 10
    assert [line.split()[1] for line in shown.splitlines()] == targets
