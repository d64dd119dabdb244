"""What the pages say is so: commands, links, parameters, rules, errors, queries."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.main import get_command

import docs.generate
from tests import ROOT
from tests.infra.project.projects import in_project
from twofold.cli.__main__ import app
from twofold.status.ledgers import ledger_schemas
from twofold.tables.declare import registry
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA, events_schema

OUTSIDE = ["README.md", "CONTRIBUTING.md", "tests/README.md"]
PAGES = [*(ROOT / name for name in OUTSIDE), *sorted((ROOT / "docs").rglob("*.md"))]
TEXT = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in PAGES}
WRITING = TEXT["docs/how-to/write-a-table.md"]
DECISIONS = sorted(name for name in TEXT if re.match(r"docs/adr/\d", name))
ROOMS = (
    "infra|quality|tables|streaming|batch|status|features|dags|testing|cli|demo|tests|docs|benchmarks|peers|packages"
)


MODULES = {path.name for room in (*ROOMS.split("|"), "docs") for path in (ROOT / room).rglob("*.py")}


def commands_in(text: str, program: str) -> Iterator[list[str]]:
    """What a page tells to type: the words after the program, of whole lines of code and of code in a line."""
    fenced = re.findall(r"^```(?:sh|console|bash)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in fenced for line in block.splitlines()]
    spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    for line in (line.removeprefix("./") for line in [*lines, *(" ".join(span.split()) for span in spans)]):
        if line == program or line.startswith(f"{program} "):
            yield shlex.split(line, comments=True)[1:]


def complaint(words: list[str]) -> str | None:
    """Why `twofold` would not understand the words; None when it would."""
    command: Any = get_command(app)
    place = "twofold"
    for word in words:
        if word == "--":  # another program's
            return None
        if word.startswith("--"):
            known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
            if word.split("=")[0] not in known:
                return f"{place} has no option {word}"
        elif hasattr(command, "commands"):
            if word.isupper():  # stands for any command
                return None
            if word not in command.commands:
                return f"{place} has no command {word}"
            command, place = command.commands[word], f"{place} {word}"
    return None


def rows_of(text: str, head: str) -> list[list[str]]:
    """The cells of the first table whose head begins like this."""
    lines = text[text.index(f"\n| {head}") + 1 :].splitlines()[2:]
    cells = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return cells


def anchors_of(text: str) -> set[str]:
    """The anchors that code hosts give the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings}


TERMS = re.findall(r"^### (.+)$", TEXT["docs/glossary.md"], re.MULTILINE)
# Words that also mean what they mean everywhere.
EVERYDAY = {"cause", "domain", "events", "gap", "home", "pending", "room", "strategy", "archive", "replay", "refresh"}
READ_IN_ORDER = [name for name in TEXT if re.match(r"docs/(tutorial|how-to/|explanation/)", name)]


AVOIDED = r"\b(told|tells?|came|anew|beside|at hand|take in|whoever|somebody|nobody|is meant|fares?)\b"
PLAIN = [*READ_IN_ORDER, *OUTSIDE, "docs/README.md", "docs/glossary.md", "docs/reference/dags.md"]


@pytest.mark.parametrize("page", PLAIN)
def test_a_page_uses_the_plain_word(page: str) -> None:
    prose = re.sub(r"^```.*?^```", "", TEXT[page], flags=re.MULTILINE | re.DOTALL)
    assert [
        " ".join(prose[m.start() - 30 : m.end() + 20].split()) for m in re.finditer(AVOIDED, prose, re.IGNORECASE)
    ] == []


def unlinked_terms(text: str) -> Iterator[str]:
    """Terms of the glossary that the prose of a page uses before it links to them."""
    prose = re.sub(r"^```.*?^```|`[^`]*`|^#+ [^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    # Of links only those to the glossary are left, without their text.
    prose = re.sub(r"\[[^\]]*\]\((?:[./]*glossary\.md#([\w-]+)|[^)]*)\)", lambda m: f"<{m[1]}>" if m[1] else "", prose)
    for term in TERMS:
        if term not in EVERYDAY:
            used = re.search(rf"\b{term}s?\b", prose, re.IGNORECASE)
            linked = prose.find(f"<{term.replace(' ', '-')}>")
            if used and not 0 <= linked < used.start():
                yield term


def test_the_readme_shows_a_whole_declaration_before_any_other_code() -> None:
    shown = re.search(r"^\[`(tables/.+?)`\].*?^```(\w+)\n(.*?)^```", TEXT["README.md"], re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert "```" not in TEXT["README.md"][: shown.start(1)]
    assert shown[2] == "python"
    assert shown[3] == (ROOT / "demo" / shown[1]).read_text("utf-8")
    assert len(shown[3].splitlines()) <= 40
    [returned] = [node for node in ast.walk(ast.parse(shown[3])) if isinstance(node, ast.Return)]
    assert isinstance(returned.value, ast.Call)
    assert ast.unparse(returned.value.func).endswith(".agg")


@pytest.mark.parametrize("page", TEXT)
def test_every_command_of_a_page_exists_with_its_options(page: str) -> None:
    found = [complaint(words) for words in commands_in(TEXT[page], "twofold")]
    assert [said for said in found if said] == []


def test_the_readme_is_short_and_has_commands_to_check() -> None:
    assert len(TEXT["README.md"].splitlines()) <= 150
    named = {words[0] for words in commands_in(TEXT["README.md"], "twofold") if words}
    assert {"status", "sql", "why", "down"} <= named


def test_every_page_can_be_reached_from_the_index() -> None:
    linked = {
        str((ROOT / page).parent.joinpath(target.partition("#")[0]).resolve().relative_to(ROOT))
        for page in ("docs/README.md", "docs/adr/README.md")
        for target in re.findall(r"\]\(([^)\s]+)\)", TEXT[page])
    }
    assert set(TEXT) - linked - {*OUTSIDE, "docs/README.md"} == set()


@pytest.mark.parametrize("page", READ_IN_ORDER)
def test_a_term_of_ours_links_to_the_glossary_where_it_is_first_used(page: str) -> None:
    assert list(unlinked_terms(TEXT[page])) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rows go to quarantine.", ["quarantine"]),
        ("Rows go to [quarantine](../glossary.md#quarantine), then quarantine.", []),
        ("# The ledgers\n`ledger.runs`\n```sh\nledger\n```\n[a ledger](x.md)", []),
        ("# Title\nSome ledgers.", ["ledger"]),
    ],
)
def test_what_counts_as_a_first_use(text: str, expected: list[str]) -> None:
    assert list(unlinked_terms(text)) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["statu"], "twofold has no command statu"),
        (["new", "stream"], "twofold new has no command stream"),
        (["reconcile", "--prove"], "twofold reconcile has no option --prove"),
        (["backfill", "TABLE", "--start", "2013-01-05"], None),
    ],
)
def test_a_command_that_is_not_there_is_found(words: list[str], expected: str | None) -> None:
    assert complaint(words) == expected


@pytest.mark.parametrize("page", TEXT)
def test_every_make_target_of_a_page_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {words[0] for words in commands_in(TEXT[page], "make") if words} - targets == set()


@pytest.mark.parametrize("page", TEXT)
def test_every_link_leads_somewhere(page: str) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXT[page]):
        place, _, anchor = target.partition("#")
        file = (ROOT / page).parent / place if place else ROOT / page
        if not file.exists() or (anchor and anchor not in anchors_of(file.read_text("utf-8"))):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", TEXT)
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    named = set(re.findall(rf"\b((?:{ROOMS})/[\w/.-]+\.(?:py|md|sql|lock|svg))\b", TEXT[page]))
    commands = list(commands_in(TEXT[page], "twofold"))
    made = {words[2] for words in commands if words[:2] == ["new", "table"] and words[2:]}
    made |= {f"test_{name}" for name in made} | {"orders" for words in commands if words[:1] == ["init"]}
    made |= {Path(name).stem for name in re.findall(r"> (\S+)", TEXT[page])} | {"NAME", "test_NAME"}
    captured = [words[2] for words in commands if words[:2] == ["new", "capture"]]
    made |= {f"{name.split('.')[-1]}{of}" for name in captured for of in ("", "_changes")}
    places = (ROOT, ROOT / "demo", (ROOT / page).parent)
    missing = [name for name in sorted(named) if not any((place / name).exists() for place in places)]
    if page not in DECISIONS:  # which say what was so then
        missing += set(re.findall(r"`(\w+\.py)`", TEXT[page])) - MODULES
    assert [name for name in missing if Path(name).stem not in made] == []


def test_the_types_of_the_page_are_those_of_a_schema() -> None:
    from twofold.infra.encodings.column_types import NESTED, SCALARS

    rows = rows_of(TEXT["docs/reference/types.md"], "written | JSON")
    named = {name for row in rows for name in re.findall(r"`(.+?)`", row[0])}
    assert named == {*SCALARS, *NESTED}


def test_the_strategies_of_the_page_are_those_of_the_registry() -> None:
    from twofold.tables.declare.table import Strategy

    assert {
        row[1].strip("`") for row in rows_of(TEXT["docs/explanation/strategies.md"], "the table | strategy")
    } == set(Strategy)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("delays_by_hour", "def delays_by_hour(departures: DataFrame)", "def delays_by_hour(departure: DataFrame)"),
        ("delays_by_hour", 'watermark="2 hours"', 'watermark="2 months"'),
        ("flights", '    primary_key=["flight_id"],\n', ""),
        ("delays_by_hour", '            F.col("window.start").alias("hour"),\n', ""),
    ],
)
def test_a_mistake_is_reported_as_the_page_shows(
    name: str, right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tables"
    shutil.copytree(
        ROOT / "demo" / "tables" / "flights", folder / "flights", ignore=shutil.ignore_patterns("__pycache__")
    )
    file = folder / "flights" / f"{name}.py"
    text = file.read_text("utf-8")
    assert right in text
    file.write_text(text.replace(right, wrong), "utf-8")
    in_project(monkeypatch, tmp_path)
    fault, *_ = registry.load(folder).faults.values()
    assert f"```text\n{fault}\n```" in WRITING


@pytest.mark.parametrize("page", sorted(set(TEXT) - {"docs/tutorial.md"}))  # which is executed
def test_every_query_of_a_page_fits_the_tables(page: str) -> None:
    connection = _empty_lake()
    commands = [words for words in commands_in(TEXT[page], "twofold") if words[:1] == ["sql"]]
    queries = [word for words in commands for word in words[1:] if not word.startswith("--")]
    for query in queries:
        # A file that a page writes is read where the page is run.
        if query.isupper() or query == "..." or "TOPIC" in query or ".parquet" in query:
            continue
        connection.execute(query).fetchall()


def _empty_lake() -> duckdb.DuckDBPyConnection:
    """Tables without rows: those whose columns are known without Spark, and the others with the columns that are."""
    connection = duckdb.connect()
    declared = registry.load()
    for schema in (*declared.domains, "ledger"):
        connection.execute(f"CREATE SCHEMA {schema}")
    known = ledger_schemas()
    for topic in declared.topics.values():
        known |= {topic.full_name: events_schema(topic), f"{topic.full_name}_quarantine": QUARANTINE_SCHEMA}
    for name, columns_of in known.items():
        connection.register("_empty", columns_of.empty_table())
        connection.execute(f"CREATE TABLE {name} AS FROM _empty")
    for table in declared.tables.values():
        dated = [table.event_time] if table.event_time else []
        columns = dict.fromkeys([*table.primary_key, *table.recompute_by, *dated, *(table.lineage_columns or ())])
        connection.execute(f"CREATE TABLE {table.full_name} ({', '.join(f'{c} VARCHAR' for c in columns)})")
        connection.execute(f"CREATE VIEW {table.name} AS FROM {table.full_name}")
    connection.execute("CREATE TABLE mean_taxi_time (records BIGINT)")
    connection.execute("CREATE SCHEMA cafe; CREATE TABLE cafe.sales_by_hour (shop VARCHAR)")  # of a new project
    return connection


def test_each_number_is_one_decision_or_is_contained_in_another() -> None:
    numbers = [int(re.match(r"docs/adr/(\d{4})-", name)[1]) for name in DECISIONS]  # type: ignore[index]
    contained = [int(number) for name in DECISIONS for number in re.findall(r"^Contains (\d{4}),", TEXT[name], re.M)]
    assert sorted([*numbers, *contained]) == list(range(1, len(numbers) + len(contained) + 1))


@pytest.mark.parametrize("page", DECISIONS)
def test_a_decision_says_why_what_follows_and_what_would_break_it(page: str) -> None:
    heading, *sections = re.findall(r"^#+ (.+)$", TEXT[page], re.MULTILINE)
    assert heading.split()[0] == Path(page).name[:4]
    required = ["Context", "Decision", "Consequences", "A change violates this when"]
    assert [section for section in sections if section != "Measured"] == required


def test_the_index_of_decisions_says_which_were_amended_or_superseded(tmp_path: Path) -> None:
    (tmp_path / "0001-a.md").write_text("# 0001 A\n\nStatus: accepted, 2026-01-01.\n\n## Context\n", "utf-8")
    (tmp_path / "0002-b.md").write_text(
        "# 0002 B\n\nStatus: accepted, 2026-01-02.\nAmends [0001](0001-a.md): the rest.\n\n## Context\n", "utf-8"
    )
    rows = docs.generate.decisions(tmp_path).splitlines()[-2:]
    assert rows == [
        "| 0001 | [A](0001-a.md) | accepted | 2026-01-01 | amended by [0002](0002-b.md) |",
        "| 0002 | [B](0002-b.md) | accepted | 2026-01-02 |  |",
    ]


@pytest.mark.parametrize("name", docs.generate.PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text("utf-8") == docs.generate.PAGES[name](), (
        f"docs/{name} is out of date: run .venv/bin/python -m docs.generate"
    )


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs").glob("*.svg")))
def test_every_picture_can_be_read_by_those_who_do_not_see_it(name: str) -> None:
    picture = (ROOT / "docs" / name).read_text("utf-8")
    assert "<title" in picture
    assert "<desc" in picture
    assert "prefers-color-scheme: dark" in picture
