"""A new project is checked, and its tests pass, as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.tables.declared import written
from twofold.cli.writing.new_project import FILES, write_project
from twofold.infra.errors import BadArgument
from twofold.infra.project.project import FILE, VARIABLE
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load


def run(folder: Path, *command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TWOFOLD_", "PYTEST_"))}
    ran = subprocess.run(
        [sys.executable, "-P", "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.platform
def test_a_new_project_is_sound_and_its_tests_pass(tmp_path: Path) -> None:
    """From its own folder and from one below it, with the jars of the checkout."""
    said = run(tmp_path, "twofold", "init", "my_platform")
    assert "cd my_platform" in said
    project = tmp_path / "my_platform"
    assert {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()} == set(FILES)
    file = project / FILE
    file.write_text(f'cache = "{ROOT / ".twofold"}"\n{file.read_text()}')
    assert "1 table without a mistake" in run(project / "tables" / "cafe", "twofold", "check", "--strict", "--quick")
    assert "3 passed" in run(project, "pytest", "-q")


def test_tables_in_a_checkout_become_those_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they were before the platform was a package."""
    checkout = tmp_path / "checkout"
    written(
        checkout,
        {
            "tables/__init__.py": "",
            "tables/declare/table.py": "",
            "tables/flights/flights.py": "",
            "tables/cafe/__init__.py": "",
            "tables/cafe/orders.py": FILES["tables/cafe/orders.py"].replace("from twofold", "from tables"),
            "tables/cafe/sales_by_hour.py": FILES["tables/cafe/sales_by_hour.py"].replace(
                "from twofold", "from tables"
            ),
            "tests/tables/test_sales_by_hour.py": """
                from infra.settings import Settings
                from tests.parity import assert_rows
            """,
            "tests/tables/test_flights.py": "",
            "schemas/orders-value/1.avsc": "{}",
            ".twofold/lake/x": "",
        },
    )
    folder, domains = write_project(tmp_path / "mine", checkout)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert domains == ["cafe"]
    assert {name for name in files if name.startswith(("tables", "tests", "schemas/o", "samples"))} == {
        "tables/cafe/__init__.py",
        "tables/cafe/orders.py",
        "tables/cafe/sales_by_hour.py",
        "tests/test_sales_by_hour.py",
        "schemas/orders-value/1.avsc",
    }
    assert (folder / "tests" / "test_sales_by_hour.py").read_text().split("\n")[1:3] == [
        "from twofold.infra.project.settings import Settings",
        "from twofold.testing import assert_rows",
    ]
    monkeypatch.setenv(VARIABLE, str(folder))
    assert Settings.from_environment({}).home == checkout / ".twofold"
    assert load(folder / "tables").require_sound().find_table("sales_by_hour").closes_at == "closes_at"
    with pytest.raises(BadArgument, match="has no domain of yours"):
        write_project(tmp_path / "other", folder / "tests")
    assert not (tmp_path / "other").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(BadArgument, match="is not empty"):
        write_project(tmp_path / "mine")
    with pytest.raises(BadArgument, match="cannot name a project"):
        write_project(tmp_path / "my platform")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "empty").mkdir()
    assert write_project(tmp_path / "empty") == (tmp_path / "empty", ["cafe"])
