"""Chooses the test files that a change can affect: `pytest --only affected`, and `make check ONLY=affected`."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT, is_test

LAWS = {"tests/docs/test_docstrings.py", "tests/test_places.py", "tests/test_rooms.py"}
"""They read every file, whoever imports it."""
CHOSEN = pytest.StashKey[set[str]]()


def affected(root: Path, files: Collection[str], changed: Collection[str]) -> set[str]:
    """Returns the test files that import a changed file, with what they import and their `conftest.py`.

    A `conftest.py` that hands on fixtures of a helper matters to the tests that name one of them. A changed file that
    no test imports, or that is not of Python, selects all tests of its room; one that is in no room selects all tests.

    Args:
        files: every Python file, relative to the root, as are all others.
    """
    modules = {module_of(file): file for file in files}
    texts = {file: (root / file).read_text("utf-8") for file in files}
    needs = {file: set(needed(ast.parse(text), modules)) for file, text in texts.items()}
    handing = [file for file in files if Path(file).name == "conftest.py"]
    handed = {file: handed_on(ast.parse(texts[file]), modules) for file in handing}
    for file, fixtures in handed.items():
        needs[file] -= set(fixtures.values())
    tests = [file for file in files if is_test(Path(file)) and Path(file).name.startswith("test_")]
    reached = {}
    for test in tests:
        own = [str(folder / "conftest.py") for folder in Path(test).parents]
        words = set(re.findall(r"\w+", texts[test]))
        helpers = [helper for file in own for name, helper in handed.get(file, {}).items() if name in words]
        reached[test] = closure([test, *helpers, *(file for file in own if file in files)], needs)
    found = {test for test in tests if not reached[test].isdisjoint(changed)}
    for file in set(changed).difference(*reached.values()):
        found.update(tests_of_room(file, tests))
    return found | LAWS.intersection(tests)


def module_of(file: str) -> str:
    return (
        re.sub(r"^packages/\w+/(?=twofold_)", "", file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )


def needed(tree: ast.Module, modules: Mapping[str, str]) -> Iterator[str]:
    """Files of the modules that a file imports or names in a text, as `-m` and `monkeypatch` have it.

    What only a checker of types imports is left out.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "tables" if node.module == "twofold" else node.module
            names = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"\w+(\.\w+)+", str(node.value)):
            names = [str(node.value)]
        else:
            continue
        for name in names:
            parts = name.removeprefix("twofold.").split(".")
            outer = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
            yield from (modules[module] for module in outer if module in modules)


def handed_on(tree: ast.Module, modules: Mapping[str, str]) -> dict[str, str]:
    """Name of a fixture that a `conftest.py` imports -> the helper of tests that it is from."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tests.")]
    return {alias.name: modules[str(node.module)] for node in imports for alias in node.names}


def closure(starts: Iterable[str], needs: Mapping[str, set[str]]) -> set[str]:
    """The files, and all that they need."""
    found, waiting = set[str](), list(starts)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += needs[file]
    return found


def tests_of_room(file: str, tests: Collection[str]) -> Iterable[str]:
    """All tests where no folder of tests has the name of the room; pages are of the room `docs`."""
    room = "docs" if file.endswith(".md") else file.partition("/")[0]
    if room in ("features", "packages"):
        folder = f"{'/'.join(Path(file).parts[:2])}/tests/"
    else:
        folder = f"{Path(file).parent}/" if room == "tests" else f"tests/{room}/"
    return [test for test in tests if test.startswith(folder)] or tests


def changed_since(base: str) -> set[str]:
    """Files that differ from a commit, those without a commit of their own included."""
    return {*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")}


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tiers").addoption(
        "--only", choices=["affected"], help="run the test files that a change since the commit before can affect"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.option.only:
        return
    if not (known := getattr(config, "workerinput", {}).get("affected")):
        files = {file for file in _git("ls-files", "-co", "--exclude-standard", "*.py") if (ROOT / file).exists()}
        known = affected(ROOT, files, changed_since("HEAD~1"))
    config.stash[CHOSEN] = set(known)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Spares each worker of xdist the look at all files."""
    node.workerinput["affected"] = sorted(node.config.stash.get(CHOSEN, set()))


def pytest_report_header(config: pytest.Config) -> str | None:
    chosen = config.stash.get(CHOSEN, None)
    return None if chosen is None else f"affected: {len(chosen)} test files"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    chosen = config.stash.get(CHOSEN, None)
    if chosen is None or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    return str(collection_path.resolve().relative_to(ROOT)) not in chosen or None
