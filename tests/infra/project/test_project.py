"""A project is found from where a command is run, and its file gives what the environment does not."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.infra.project.projects import in_project
from twofold.infra.errors import BadSetting
from twofold.infra.project.project import project
from twofold.infra.project.settings import Settings, given_settings


def test_texts_name_the_command_and_the_pages_as_their_reader_has_them(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    module = shutil.copy(ROOT / "infra" / "__init__.py", tmp_path / "infra")
    installed = runpy.run_path(module)
    assert (installed["COMMAND"], installed["DOCS"]) == ("twofold", str(tmp_path / "docs"))
    (tmp_path / "twofold").touch()
    of_checkout = runpy.run_path(module)
    assert (of_checkout["COMMAND"], of_checkout["DOCS"]) == ("./twofold", "docs")


def test_the_nearest_folder_above_is_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_project(monkeypatch, tmp_path)
    inner = in_project(monkeypatch, tmp_path / "inner")
    monkeypatch.delenv("TWOFOLD_PROJECT")
    (inner / "tables" / "cafe").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    found = {}
    for place in (tmp_path, tmp_path / "other", inner, inner / "tables" / "cafe"):
        monkeypatch.chdir(place)
        found[place] = project().folder
    assert list(found.values()) == [tmp_path, tmp_path, inner, inner]
    monkeypatch.setenv("TWOFOLD_PROJECT", str(tmp_path))
    assert project().folder == tmp_path


def test_the_table_of_a_pyproject_makes_a_project_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.twofold.settings]\nkafka_port = 9999\n")
    (inner / "pyproject.toml").write_text("[tool.other]\n")
    monkeypatch.chdir(inner)
    monkeypatch.delenv("TWOFOLD_PROJECT", raising=False)
    assert project().folder == tmp_path
    assert Settings.from_environment({}).kafka_port == 9999


def test_outside_of_a_project_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWOFOLD_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSetting, match=f"neither {tmp_path} nor a folder above it") as refused:
        Settings.from_environment({})
    assert "twofold init" in str(refused.value.hint)
    monkeypatch.setenv("TWOFOLD_PROJECT", str(tmp_path / "none"))
    with pytest.raises(BadSetting, match=r"expected a folder with a twofold.toml"):
        project()


def test_the_environment_comes_first_then_the_file_then_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        '[settings]\nkafka_port = 9999\nlake = "tables of mine"\narchive = "s3://bucket/archive"\nhome = "/srv/home"\n'
    )
    in_project(monkeypatch, tmp_path, text)
    settings = Settings.from_environment({"TWOFOLD_LAKE": "/lake"})
    assert (settings.kafka_port, settings.lake, settings.archive) == (9999, "/lake", "s3://bucket/archive")
    assert settings.home == Path("/srv/home")
    assert Settings.from_environment({}).lake == str(tmp_path / "tables of mine")
    origins = {name: one.origin for name, one in given_settings({"TWOFOLD_LAKE": "/lake"}).items()}
    file = str(tmp_path / "twofold.toml")
    assert origins == {"kafka_port": file, "lake": "TWOFOLD_LAKE", "archive": file, "home": file}
    assert Settings.from_environment(settings.environment()) == settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[settings]\nairflow_password = "x"', "airflow_password may hold a secret"),
        ('[settings]\ndatabase = "postgresql://u:p@h/d"', "Set TWOFOLD_DATABASE in the environment"),
        ("[settings]\nkafka_prot = 1", "The settings are home, lake"),
        ('[settings]\nkafka_port = "ninety"', "kafka_port='ninety': expected a port"),
        ("[settings]\nkafka_port = true", "expected a text or a whole number"),
        ("[settings]\nlake = ['x']", "expected a text or a whole number"),
        ('[setings]\nlake = "x"', "setings is not expected"),
        ("settings = 1", "settings is not expected"),
        ("settings", "Expected TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twofold.toml").write_text(text)
    monkeypatch.setenv("TWOFOLD_PROJECT", str(tmp_path))
    with pytest.raises(BadSetting) as refused:
        Settings.from_environment({})
    assert said in f"{refused.value}\n{refused.value.hint}"
    assert str(tmp_path / "twofold.toml") in str(refused.value)


def test_a_declaration_is_imported_by_one_name_in_each_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So workers of Spark find what a function of it is, which they get by name."""
    in_project(monkeypatch, tmp_path)
    (tmp_path / "tables" / "cafe").mkdir(parents=True)
    (tmp_path / "tables" / "cafe" / "orders.py").write_text("def doubled(x: int) -> int:\n    return 2 * x\n")
    program = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1]))(21))"
    pickled = b"ctwofold.declared.cafe.orders\ndoubled\n."
    ran = subprocess.run([sys.executable, "-c", program, pickled.hex()], cwd="/", capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("42\n", "")


def test_the_checkout_is_a_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWOFOLD_PROJECT", raising=False)
    monkeypatch.chdir(ROOT / "docs")
    assert (project().folder, Settings().home, Settings().jars) == (ROOT, ROOT / ".twofold", ROOT / ".twofold" / "jars")


def test_a_user_has_a_cache_for_the_jars_of_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twofold.toml").touch()
    monkeypatch.setenv("TWOFOLD_PROJECT", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert project().cache.parent == tmp_path / "cache" / "twofold"
