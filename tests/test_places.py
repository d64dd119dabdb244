"""Places and names: what a folder name and a file name promise to a reader."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from docs.lines import GROUPS, files_of, lines_of
from tests import ROOT, is_test
from tests.test_rooms import imports_of
from twofold import tables
from twofold.cli.__main__ import app

ROOMS = [*(path.parent for path in sorted(ROOT.glob("*/__init__.py"))), ROOT / "packages"]
MODULES = [
    path.relative_to(ROOT)
    for room in (*ROOMS, ROOT / "docs")
    for path in sorted(room.rglob("*.py"))
    if path.stem not in ("__init__", "__main__", "conftest", "feature")
]
MOST_MODULES = 14
NOT_PLAIN = re.compile(
    r"\b(tells?|told|came|anew|beside|at hand|tak(?:es?|en|ing) in|took in|whoever|somebody|anybody|nobody"
    r"|is meant|are meant|of which|fares?|lies?|lay|stands?|stood)\b",
    re.IGNORECASE,
)
CLASSES_OF_NOTHING = {"Known", "Knowledge", "Head", "Growth", "Kept", "Found", "Maintain", "Judge", "Need"}
NAMES_OF_NOTHING = {"told", "said", "named", "few", "many", "most", "of", "less"}


def is_declaration(path: Path) -> bool:
    return "declared" in path.parts or (path.parts[:2] == ("demo", "tables"))


def not_plain(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if NOT_PLAIN.search(line)]


def helps_of(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """Every help text below a command."""
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
    for child, below in getattr(command, "commands", {}).items():
        yield from helps_of(below, f"{name} {child}")


def test_no_two_modules_share_a_base_name() -> None:
    places = defaultdict(list)
    for path in MODULES:
        if not is_declaration(path):  # two domains may have a table of the same name
            places[path.stem].append(str(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
    assert len(places) > 250


def test_no_folder_holds_too_many_modules() -> None:
    held = defaultdict(list)
    for path in MODULES:
        if not is_declaration(path):
            held[str(path.parent)].append(path.stem)
    assert {folder: len(names) for folder, names in held.items() if len(names) > MOST_MODULES} == {}


MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_PARAMETERS = 450, 60, 8


def test_modules_functions_and_parameter_lists_are_short() -> None:
    """Compiled loops are exempt, since a call would cost them more than their work; and the options of commands."""
    long: list[str] = []
    for path in (path for path in MODULES if path.parts[0] not in ("benchmarks", "peers") and not is_test(path)):
        text = (ROOT / path).read_text("utf-8")
        lines = len(text.splitlines())
        long += [f"{path}: {lines} lines"] if lines > MOST_LINES else []
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef) or "compiled" in map(ast.unparse, node.decorator_list):
                continue
            own = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            parameters = len([name for name in own if name not in ("self", "cls")])
            if (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION:
                long.append(f"{path}: {node.name} has more than {MOST_LINES_OF_A_FUNCTION} lines")
            if parameters > MOST_PARAMETERS and not path.stem.endswith(("_command", "_commands")):
                long.append(f"{path}: {node.name} has {parameters} parameters")
    assert long == []


MOST_LINES_OF_A_PART = {
    "infra": 13_250,
    "quality": 1_550,
    "tables": 8_150,
    "streaming": 3_600,
    "batch": 7_700,
    "status": 2_350,
    "dags": 2_450,
    "testing": 750,
    "cli": 4_300,
    "features": 14_100,
    "packages/twofold_algebra": 4_700,
    "packages/twofold_archive": 2_000,
    "demo": 5_500,
}
"""All lines of Python, rounded up; a higher limit is a decision, which says what the lines are for."""


def test_no_part_of_the_product_outgrows_its_limit() -> None:
    lines = {part: lines_of(files_of(part)) for parts in GROUPS.values() for part in parts}
    assert lines.keys() == MOST_LINES_OF_A_PART.keys()
    assert {
        part: lines[part] for part, most in MOST_LINES_OF_A_PART.items() if not most - 100 < lines[part] <= most
    } == {}
    assert sum(lines.values()) > 60_000


@pytest.mark.parametrize("group", GROUPS)
def test_the_page_of_tests_names_the_limit_of_each_group(group: str) -> None:
    most = sum(MOST_LINES_OF_A_PART[part] for part in GROUPS[group])
    assert f"| {group} | {', '.join(f'`{part}`' for part in GROUPS[group])} | {most:,} |" in (
        (ROOT / "tests" / "README.md").read_text("utf-8").splitlines()
    )


MOST_LOCALS_OF_NOTHING = {"found": 119, "known": 79, "one": 295}
"""Variables and parameters of the product that say nothing of what they hold; a limit falls with their number.

Of those that are left many are in code whose text is part of a fingerprint.
"""


def test_locals_that_say_nothing_become_fewer() -> None:
    names: Counter[str] = Counter()
    for path in (path for part in MOST_LINES_OF_A_PART for path in files_of(part)):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] += 1
            elif isinstance(node, ast.arg):
                names[node.arg] += 1
    assert {
        name: names[name] for name, most in MOST_LOCALS_OF_NOTHING.items() if not most - 10 < names[name] <= most
    } == {}


def test_tests_mirror_the_rooms() -> None:
    rooms = {str(folder) for path in MODULES if not is_test(path) for folder in path.parents}
    own = {"chaos", "docs", "fuzz", "harness", "kinds", "mutations", "platform", "support"}
    folders = {str(path.parent.relative_to("tests")) for path in MODULES if path.parts[0] == "tests"} - {"."}
    assert {folder for folder in folders if folder not in rooms and folder.split("/")[0] not in own} == set()


def test_declarations_import_from_tables_alone() -> None:
    found = {
        str(path): sorted(modules)
        for path in MODULES
        if is_declaration(path) and (modules := _own_imports(path) - {"tables"})
    }
    assert found == {}


def test_outside_of_their_own_room_tests_import_only_commands_from_cli() -> None:
    found = {
        str(path): sorted(modules)
        for path in MODULES
        if path.parts[0] == "tests"
        and path.parts[1] not in ("cli", "demo")
        and (modules := {m for m in _own_imports(path) if m.startswith("cli") and m != "cli.__main__"})
    }
    assert found == {}


def _own_imports(path: Path) -> set[str]:
    rooms = {room.name for room in ROOMS}
    imports = imports_of((ROOT / path).read_text("utf-8"))
    return {module for module, _ in imports if module.split(".")[0] in rooms}


def test_no_code_asks_which_encoding_a_topic_has() -> None:
    asks = re.compile(r"encoding\s*(==|!=|in\b|not in\b)|[\"'](avro|protobuf|debezium)[\"']\s*(==|!=)")
    code = (
        path
        for path in MODULES
        if path.parts[0] in ("packages", "infra", "tables", "streaming", "batch", "features", "testing", "cli", "dags")
    )
    assert [str(path) for path in code if asks.search((ROOT / path).read_text("utf-8"))] == []


def test_no_function_is_called_by_a_word_that_says_nothing() -> None:
    found = [
        f"{path}: {node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name in NAMES_OF_NOTHING
    ]
    assert found == []


def test_no_class_is_called_by_a_word_that_says_nothing() -> None:
    found = [
        f"{path}: {node.name}"
        for path in MODULES
        if not is_test(path)
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and node.name in CLASSES_OF_NOTHING
    ]
    assert found == []


def test_the_first_line_of_a_module_is_in_plain_words() -> None:
    found = {}
    for path in MODULES:
        first = (ast.get_docstring(ast.parse((ROOT / path).read_text("utf-8"))) or "").split("\n")[0]
        if NOT_PLAIN.search(first):
            found[str(path)] = first
    assert found == {}


def test_test_names_are_in_plain_words_and_short() -> None:
    texts = [(ROOT / path).read_text("utf-8") for path in MODULES if is_test(path) and path.stem.startswith("test_")]
    names = [name for text in texts for name in re.findall(r"^ *def (test_\w+)", text, re.MULTILINE)]
    assert len(names) > 1_000
    assert [name for name in names if len(name) > 70 or not_plain(name.replace("_", " "))] == []


def test_help_texts_are_in_plain_words() -> None:
    assert {name: wrong for name, text in helps_of(get_command(app), "twofold") if (wrong := not_plain(text))} == {}


@pytest.mark.parametrize("name", tables.__all__)
def test_what_declarations_use_is_explained_in_plain_words(name: str) -> None:
    value = getattr(tables, name)
    assert not_plain(inspect.getdoc(value) or "" if callable(value) else "") == []


def test_titles_of_decisions_are_in_plain_words() -> None:
    titles = [path.read_text("utf-8").split("\n")[0] for path in (ROOT / "docs" / "adr").glob("*.md")]
    assert len(titles) > 30
    assert [title for title in titles if NOT_PLAIN.search(title)] == []


def test_pages_and_decisions_are_in_plain_words() -> None:
    others = ("README.md", "CONTRIBUTING.md", "tests/README.md", *map(str, (ROOT / "packages").glob("*/README.md")))
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in others)]
    assert len(pages) > 70
    found = {str(page.relative_to(ROOT)): not_plain(prose(page.read_text("utf-8"))) for page in pages}
    assert {page: lines for page, lines in found.items() if lines} == {}


def prose(text: str) -> str:
    """A page without code and without the targets of its links."""
    return re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)


def test_each_question_names_definitions_that_are_there() -> None:
    rows = re.findall(r"^\| (.+) \| (`.+`) \|$", (ROOT / "docs" / "where-is-what.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) >= 20
    named = [place for _, places in rows for place in re.findall(r"`(.+?)::(.+?)`", places)]
    assert len(named) >= len(rows)
    assert [f"{file}::{name}" for file, name in named if name not in _defined(ROOT / file)] == []


def _defined(path: Path) -> set[str]:
    """The names of a module's functions, classes and constants; none where there is no such file."""
    tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
    assigned = (node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
    constants = {name.id for node in assigned for name in ast.walk(node) if isinstance(name, ast.Name)}
    return constants | {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
