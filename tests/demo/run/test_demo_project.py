"""The demo is a project like any other: it runs in the project that has it, else in a copy below the working folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import ROOT
from tests.infra.project.projects import in_project
from twofold.demo.run.demo_project import FOLDER, enter_project
from twofold.infra.errors import BadArgument
from twofold.infra.project.project import VARIABLE, project
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load


def files_below(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*.py")}


def test_outside_of_a_project_it_is_copied_once_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "")
    folder = tmp_path / FOLDER
    assert enter_project("flights") == folder
    assert "Wrote" in capsys.readouterr().out
    for part in ("tables", "notebooks", "tests"):
        assert files_below(folder / part) == files_below(ROOT / "demo" / part)
    assert project().folder == folder
    assert "twofold[demo]>=" in (folder / "pyproject.toml").read_text("utf-8")
    assert Settings.from_environment({}).home == folder / ".twofold"
    assert len(load(folder / "tables").require_sound().tables) == len(load(ROOT / "demo" / "tables").tables)

    edited = folder / "tables" / "shop" / "orders.py"
    edited.write_text(edited.read_text("utf-8") + "# mine\n")
    monkeypatch.setenv(VARIABLE, "")
    assert enter_project("shop") == folder
    assert "Wrote" not in capsys.readouterr().out
    assert edited.read_text("utf-8").endswith("# mine\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv(VARIABLE, "")
    assert enter_project("shop") is None


def test_it_leaves_alone_what_is_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_project(monkeypatch, tmp_path, "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "mine").touch()
    with pytest.raises(BadArgument, match="exists already, and is not empty"):
        enter_project("flights")
    assert os.environ[VARIABLE] == str(tmp_path)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["mine"]


def test_in_the_checkout_it_is_the_folder_of_the_demo() -> None:
    assert enter_project("shop") is None
    assert project().tables == ROOT / "demo" / "tables"
    assert Settings.from_environment({}).home == ROOT / ".twofold"
