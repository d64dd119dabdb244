"""Docstrings: each can be read alone, since an editor shows it alone.

A function says what it does, by a verb in the third person; a predicate begins with "Whether", a property is a noun.
The help of a command is in the imperative, as in other programs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from typer import Typer

from tests import ROOT, is_test
from tests.test_rooms import MAY_IMPORT, path_of, place_of
from twofold.cli.__main__ import app

NOT_YET = ("tables/declare/topic.py", "demo/tables")
ALL_PLACES = (*MAY_IMPORT, "docs", "twofold")

OPENERS = re.compile(r"(Of|The same|As|That|And|Or|But|What|Where|Everything|Until)\b")
NOUNS = (
    "BYtes Classes Columns Commands Corrections Dags Days Details Differences Events Facts Fields Files Ids"
    " Instants Its Keys Lines Milliseconds Numbers Offsets Options Parameters Partitions Parts Paths Places Ranges"
    " Results Rows Rules Seconds Segments Settings Structs Tables Texts This Tokens Topics Values Variables Versions"
    " Words"
)
VERB = re.compile(rf"Whether\b|(?!(?:{NOUNS.replace(' ', '|')})\b)[A-Z]\w*[^s\W]s\b(?!:)")
OF_A_FUNCTION = re.compile(r"(Returns?|Gets?|Computes?|Reads?|Gives?|Makes?)\b")
MODIFIER = re.compile(
    r"(?:\A|(?<=[.;:!?] ))(?:Of|Those|That|What|Where|As|And|Or|But|In|By|From|To|For(?! example)|On|At)\b[^.]*"
)


def docstrings(folder: str, kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> Iterator[tuple[str, ast.AST, str]]:
    """Yields place, node and docstring of the definitions in a room, without those that are not held to it yet."""
    for path in sorted(place_of(folder).rglob("*.py")):
        name = str(path_of(path))
        if name.startswith(NOT_YET) or is_test(path.relative_to(ROOT)):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, kind) and (text := ast.get_docstring(node)):  # type: ignore[arg-type]
                yield f"{name}: {getattr(node, 'name', '')}", node, text


def helps(typer: Typer) -> set[tuple[str, str]]:
    """Returns file and name of the functions whose docstring is the help of a command."""
    infos = [*typer.registered_commands, *filter(None, [typer.registered_callback])]
    callbacks = [callback for info in infos if (callback := info.callback)]
    found = {(f"{c.__module__.removeprefix('twofold.').replace('.', '/')}.py", c.__code__.co_name) for c in callbacks}
    return found.union(*(helps(group.typer_instance) for group in typer.registered_groups if group.typer_instance))


def is_property(node: ast.AST) -> bool:
    return any("property" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))


def sentences_that_begin_with_a_modifier(text: str) -> list[str]:
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return [found for paragraph in paragraphs for found in MODIFIER.findall(paragraph)]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_function_opens_with_a_verb_in_the_third_person(room: str) -> None:
    of_commands = helps(app)
    functions = [
        (place, text)
        for place, node, text in docstrings(room, ast.FunctionDef)
        if not is_property(node) and tuple(place.split(": ")) not in of_commands
    ]
    assert functions
    assert [f"{place}: {text.splitlines()[0]}" for place, text in functions if not VERB.match(text)] == []


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_property_opens_with_a_noun(room: str) -> None:
    properties = [(place, text) for place, node, text in docstrings(room, ast.FunctionDef) if is_property(node)]
    assert [f"{place}: {text.splitlines()[0]}" for place, text in properties if OF_A_FUNCTION.match(text)] == []


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_no_sentence_begins_with_its_modifier(room: str) -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = {place: sentences_that_begin_with_a_modifier(text) for place, _, text in docstrings(room, kinds)}
    assert {place: sentences for place, sentences in found.items() if sentences} == {}


@pytest.mark.parametrize("room", ALL_PLACES)
def test_docstrings_open_with_their_subject(room: str) -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    opened = [f"{p}: {text.splitlines()[0]}" for p, _, text in docstrings(room, kinds) if OPENERS.match(text)]
    assert opened == []


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("Of a key whose rows are gone, the last one.", True),
        ("Returns the rows. Those of a key come together.", True),
        ("Returns the rows. In a lake that is empty there are none.", True),
        ("Returns the rows.\n\nWhat is late is left out.", True),
        ("Writes rows. If a row is late, it is left out. For example: `a`.", False),
        ("Returns the time in epoch milliseconds; None: there is none.", False),
    ],
)
def test_a_sentence_that_begins_with_its_modifier_is_found(text: str, is_refused: bool) -> None:
    assert bool(sentences_that_begin_with_a_modifier(text)) is is_refused


@pytest.mark.parametrize(
    ("text", "has_verb"),
    [
        ("Returns the rows.", True),
        ("Quotes a name.", True),
        ("Whether a row is late.", True),
        ("Return the rows.", False),
        ("The rows that are late.", False),
        ("Rows that are late.", False),
        ("`TABLE [--all]`, of a run.", False),
        ("Raises:\n    BadArgument: no table.", False),
    ],
)
def test_a_verb_in_the_third_person_is_recognized(text: str, has_verb: bool) -> None:
    assert bool(VERB.match(text)) is has_verb
