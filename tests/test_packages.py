"""Each package is built by itself, and its README runs where nothing else of ours is installed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.test_rooms import PACKAGES, files_of, place_of
from tests.test_wheel import build

ALONE = """
import importlib, importlib.abc, sys
class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {others}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nothing())
sys.path.insert(0, {installed!r})
for name in {modules}:
    assert importlib.import_module(name).__file__.startswith({installed!r}), name
"""


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_the_readme_of_a_package_runs_from_its_own_wheel(tmp_path: Path, package: str) -> None:
    source = place_of(package)
    with build(tmp_path / "dist", "--wheel", project=ROOT / "packages" / package) as wheel:
        wheel.extractall(tmp_path / "installed")
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == {f"{package}/{path.relative_to(source)}" for path in files_of(source)}
    readme = (ROOT / "packages" / package / "README.md").read_text("utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert len(ast.parse(example).body) >= 5
    modules = [name.removesuffix(".py").replace("/", ".") for name in sorted(held) if name.endswith(".py")]
    alone = ALONE.format(
        installed=str(tmp_path / "installed"), modules=modules, others={"twofold", *PACKAGES} - {package}
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", alone + example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
