"""A feature can be taken away: its folder is removed, and all else is loaded as before."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT, is_test

LOADED = """
import pkgutil
from importlib import import_module
import twofold
from twofold.cli.__main__ import COMMANDS
from twofold.cli.services import SERVICES
from twofold.infra.project.feature import words
OF_AIRFLOW = ("twofold.dags", "twofold.features.page.server.airflow_plugin")
modules = [module.name for module in pkgutil.walk_packages(twofold.__path__, "twofold.")]
loaded = [import_module(name) for name in modules if not name.startswith(OF_AIRFLOW) and not name.endswith("__main__")]
print(twofold.__file__)
print(len(loaded))
print(*sorted(command.__name__ for commands in COMMANDS.values() for command in commands))
print(*sorted(words()))
"""


def copied(place: Path) -> None:
    """Copies what git knows of the product, without the demo and tests."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in filter(None, listed):
        source, target = ROOT / name, place / name
        if source.exists() and not name.startswith(("demo/", "docs/")) and not is_test(Path(name)):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target, follow_symlinks=False)


@pytest.mark.platform
@pytest.mark.parametrize("feature", ["analysts", "search", "page", "work_queue"])
def test_without_a_feature_all_else_is_loaded(tmp_path: Path, feature: str) -> None:
    copied(tmp_path)
    shutil.rmtree(tmp_path / "features" / feature)
    (tmp_path / "src" / "twofold" / "demo").unlink()
    ran = subprocess.run(
        [sys.executable, "-P", "-c", LOADED],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "src"), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    place, count, commands, words = ran.stdout.splitlines()
    assert place.startswith(str(tmp_path))
    assert int(count) > 400
    own = {"analysts": "sql", "search": "search", "page": "page", "work_queue": "work"}
    assert {name: name in commands.split() for name in own.values()} == {own[k]: k != feature for k in own}
    assert ("to_search" in words.split()) == (feature != "search")
