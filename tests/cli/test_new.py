"""A new table is one command."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from cli.new import write_table
from infra.errors import BadArgument
from infra.settings import ROOT
from tables import registry


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the declarations."""
    folder = Path("tables") / "flights"
    shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("reads", "strategy", "key"),
    [
        ("departures", "stateful", ("carrier", "hour")),
        ("weather", "stateful", ("airport", "hour")),
        ("flights.arrivals", "stateful", ("carrier", "hour")),
        ("flights", "touched", ("flight_id",)),
        ("carrier_days", "touched", ("carrier",)),
    ],
)
def test_what_it_writes_can_be_loaded(checkout: Path, reads: str, strategy: str, key: tuple[str, ...]) -> None:
    written = write_table("my_counts", domain="flights", reads=reads, root=checkout)
    declared = registry.load(checkout / "tables")
    table = declared.find_table("my_counts")
    assert declared.strategy(table) == strategy
    assert table.key == key
    assert [i.full_name for i in declared.upstream(table)] == [f"flights.{reads.removeprefix('flights.')}"]
    tests = [node.name for node in ast.walk(ast.parse(written.test.read_text())) if isinstance(node, ast.FunctionDef)]
    assert len(tests) == 1
    assert tests[0].startswith("test_")


@pytest.mark.parametrize("name", ["Counts", "9lives", "class", "my-table", "x_quarantine", "../x", ""])
def test_a_name_that_cannot_be_used_is_refused(checkout: Path, name: str) -> None:
    with pytest.raises(BadArgument, match="cannot name a table"):
        write_table(name, domain="flights", reads="departures", root=checkout)


def test_nothing_is_overwritten(checkout: Path) -> None:
    write_table("my_counts", domain="flights", reads="departures", root=checkout)
    with pytest.raises(BadArgument, match="declared already"):
        write_table("my_counts", domain="flights", reads="departures", root=checkout)
    (checkout / "tables" / "flights" / "my_counts.py").unlink()
    with pytest.raises(BadArgument, match="is there already"):
        write_table("my_counts", domain="flights", reads="departures", root=checkout)
    assert not (checkout / "tables" / "flights" / "my_counts.py").exists()


def test_an_unknown_input_is_refused_with_what_there_is(checkout: Path) -> None:
    with pytest.raises(BadArgument) as refused:
        write_table("my_counts", domain="flights", reads="departure", root=checkout)
    assert "departures" in str(refused.value.hint)


def test_an_unknown_domain_is_refused(checkout: Path) -> None:
    with pytest.raises(BadArgument):
        write_table("my_counts", domain="rail", reads="departures", root=checkout)
