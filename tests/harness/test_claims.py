"""Every guarantee has a test in `make test`, and so has every claim of `make prove`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.harness.tiers import TIERS

TESTS = ROOT / "tests"
FILES = re.compile(r"`([\w/]+/\w+(?:\.py)?|\w+\.py)`")


def rows_of(page: Path, head: str) -> list[list[str]]:
    """Cells of the table whose head begins like this."""
    _, _, rest = page.read_text("utf-8").partition(f"\n{head}")
    table = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def marks_of(file: Path) -> Iterator[set[str]]:
    """The marks of each test, written next to it or for all of its file."""
    tree = ast.parse(file.read_text("utf-8"))
    assigned = {ast.unparse(n.targets[0]): _marks(n.value) for n in tree.body if isinstance(n, ast.Assign)}
    for name, marks in assigned.items():
        if name.startswith("test_"):
            yield assigned.get("pytestmark", set()) | marks
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield assigned.get("pytestmark", set()).union(*map(_marks, node.decorator_list))


def _marks(node: ast.expr) -> set[str]:
    return set(re.findall(r"pytest\.mark\.(\w+)", ast.unparse(node)))


def tiers_of(place: Path) -> set[str]:
    """The tiers that have a test of a file or folder."""
    files = [place] if place.suffix else sorted(place.rglob("test_*.py"))
    return {tier for file in files for marks in marks_of(file) for tier, has in TIERS.items() if has(marks)}


def place_of(name: str) -> Path:
    """The file of a name: those of features begin at the root, all others in the room of tests."""
    return (ROOT if name.startswith("features/") else TESTS) / name


def name_of(row: list[str]) -> str:
    return str(re.findall(r"[\w/.][\w/. ]*", row[0])[0])


GUARANTEES = rows_of(ROOT / "docs" / "explanation" / "guarantees.md", "| | invariant |")
PROVED = rows_of(TESTS / "README.md", "| tests of `make prove` |")


@pytest.mark.parametrize("row", GUARANTEES, ids=name_of)
def test_a_guarantee_is_tested_in_the_tiers_that_are_named(row: list[str]) -> None:
    named = [("test", row[3]), *(part.strip().split(": ") for part in row[4].split(";") if part)]
    places = re.compile(r"`((?:features|packages|tests)(?:/[\w.]+)+)`")
    found = [(tier, name) for tier, names in named for name in places.findall(names)]
    assert {"test"} <= {tier for tier, _ in found}
    assert [(tier, name) for tier, name in found if tier not in tiers_of(ROOT / name)] == []


@pytest.mark.parametrize("row", PROVED, ids=name_of)
def test_what_is_only_proved_has_its_claim_in_make_test(row: list[str]) -> None:
    moved, held = FILES.findall(row[0]), FILES.findall(row[2])
    assert moved
    assert held
    assert [name for name in moved if "prove" not in tiers_of(place_of(name))] == []
    assert [name for name in held if "test" not in tiers_of(place_of(name))] == []


def test_every_file_with_tests_that_are_only_proved_is_listed() -> None:
    files = [*TESTS.rglob("test_*.py"), *(ROOT / "features").rglob("test_*.py")]
    proved = {file for file in files if any("prove" in marks for marks in marks_of(file))}
    assert len(proved) > 15
    assert proved == {place_of(name) for row in PROVED for name in FILES.findall(row[0])}
