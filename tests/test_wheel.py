"""What `pip install` gets is what the repository holds, built from the tree or by way of the source distribution."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests import ROOT
from tests.test_rooms import PACKAGES

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
BUILT = PROJECT["tool"]["hatch"]["build"]


def build(target: Path, *options: str, project: Path = ROOT) -> ZipFile:
    command = [sys.executable, "-m", "uv", "build", "--offline", "--no-build-isolation", *options]
    subprocess.run([*command, "--out-dir", target, project], capture_output=True, check=True)
    [wheel] = target.glob("*.whl")
    return ZipFile(wheel)


def parents(name: str) -> set[str]:
    return {name, *map(str, Path(name).parents)}


@pytest.mark.parametrize("options", [("--wheel",), ()], ids=["tree", "source_distribution"])
def test_a_wheel_holds_what_git_knows_of_its_folders(tmp_path: Path, options: tuple[str, ...]) -> None:
    known = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *BUILT["only-include"]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    left_out = {str(path.relative_to(ROOT)) for pattern in BUILT["exclude"] for path in ROOT.glob(pattern)}
    there = [name for name in known if (ROOT / name).exists() and not left_out.intersection(parents(name))]
    of_wheel = BUILT["targets"]["wheel"]["sources"]
    named = {name: next(source for source in of_wheel if name.startswith(f"{source}/")) for name in there}
    expected = {of_wheel[source] + name.removeprefix(source) for name, source in named.items()}
    with build(tmp_path, *options) as wheel:
        assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected
        [metadata] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        assert f"Version: {PROJECT['project']['version']}" in wheel.read(metadata).decode().splitlines()


def test_what_is_installed_with_all_extras_is_what_the_checkout_runs_with() -> None:
    listed = (ROOT / "requirements.in").read_text("utf-8").splitlines()
    of_checkout = {line.replace("==", "~=") for line in listed if line and not line.startswith("#")}
    of_extras = {line for lines in PROJECT["project"]["optional-dependencies"].values() for line in lines}
    required = {line for line in {*PROJECT["project"]["dependencies"], *of_extras} if not line.startswith("twofold[")}
    assert required == of_checkout - {"hatchling", "uv"}


def test_every_room_is_in_the_wheel_by_the_name_it_is_imported_by() -> None:
    """Linked below `src` for who works in the checkout, and named for who builds a wheel; the pages are only read."""
    linked = {path.name: path for path in (ROOT / "src" / "twofold").iterdir() if path.is_symlink()}
    assert {path.resolve() for path in linked.values()} == {ROOT / name for name in linked}
    packages = {f"packages/{name}/{name}": name for name in PACKAGES}
    assert {name: (ROOT / "src" / name).resolve() for name in PACKAGES} == {
        name: ROOT / place for place, name in packages.items()
    }
    of_wheel = BUILT["targets"]["wheel"]["sources"]
    assert {source: of_wheel[source] for source in of_wheel if not source.startswith("src/")} == {
        **{name: f"twofold/{name}" for name in (*linked, "docs")},
        **packages,
    }
    assert {name for name in BUILT["only-include"] if not name.startswith("src/")} == {*linked, "docs", *packages}
    banned = PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert set(banned) == set(linked)


def test_what_is_installed_has_its_names_and_its_fingerprints(tmp_path: Path) -> None:
    """It meets no package of another name, and calls its own code so wherever that is."""
    installed = tmp_path / "site-packages"
    with build(tmp_path / "dist", "--wheel") as wheel:
        wheel.extractall(installed)
    beside = tmp_path / "beside"
    for name in ("tables", "batch", "infra"):
        (beside / name).mkdir(parents=True)
        (beside / name / "__init__.py").write_text("OWN = True\n")
    program = f"""
import sys
sys.path[:0] = [{str(installed)!r}, {str(beside)!r}]
import batch, infra, tables, twofold, twofold.cli.__main__
assert batch.OWN and infra.OWN and tables.OWN
for module in (twofold, *map(sys.modules.get, {sorted(PACKAGES)})):
    assert module.__file__.startswith({str(tmp_path)!r}), module.__file__
assert twofold.Topic is twofold.tables.Topic
sys.path.append({str(ROOT)!r})
from tests.tables.declare.test_kept_fingerprints import KEPT, fingerprints
assert fingerprints() == __import__("json").loads(KEPT.read_text("utf-8"))
"""
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=beside,
        env={**os.environ, "TWOFOLD_PROJECT": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
