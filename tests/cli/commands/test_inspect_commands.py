"""Commands that look: they work on whatever is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import Audited
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration
from twofold.infra.project.settings import Settings
from twofold.streaming.query.progress import Progress, write
from twofold.tables.declare import registry


def test_tables_lists_every_declaration_before_anything_ran(cli: Cli) -> None:
    document = cli("tables", "--json").document
    declared = registry.load()
    assert {topic["name"] for topic in document["topics"]} == set(declared.topics)
    assert {table["name"]: table["strategy"] for table in document["tables"]} == {
        name: declared.strategy(table) for name, table in declared.tables.items()
    }
    assert all(table["rows"] is None for table in document["tables"])


def test_show_describes_a_declaration_before_anything_ran(cli: Cli) -> None:
    page = cli("show", "delays_by_hour", "--json").document
    assert page["name"] == "flights.delays_by_hour"
    assert page["declaration"]["watermark"] == "2 hours"
    assert page["declaration"]["key"] == ["origin", "hour"]
    assert sorted(page["declaration"]["inferred"]) == [
        "closes_at",
        "depends_within",
        "event_time",
        "primary_key",
        "recompute_by",
    ]
    assert page["declaration"]["reads"] == ["flights.departures"]
    assert "not_null(origin)" in page["rules"]
    [late_share] = [column for column in page["columns"] if column["name"] == "late_share"]
    assert late_share["description"] == "share of the flights that left more than 15 minutes late"
    assert late_share["made of"] == "departures.delay_min"
    assert page["rows"] is None
    shown = cli("show", "delays_by_hour")
    assert shown.code == 0
    assert "share of the flights that left more than 15 minutes late" in " ".join(shown.out.split())


def test_show_knows_topics_too(cli: Cli) -> None:
    page = cli("show", "departures", "--json").document
    described = "delay of the departure against the schedule, minutes; negative is early"
    assert {"name": "delay_min", "type": "int?", "description": described} in page["columns"]


@pytest.mark.parametrize("width", ["80", "100", "200"])
def test_screens_fit_any_width(cli: Cli, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    for command in (["tables"], ["show", "flights.flights"]):
        assert max(len(line.rstrip()) for line in cli(*command).out.splitlines()) <= int(width)


def test_status_of_a_platform_that_is_down_says_so_and_shows_what_there_is(cli: Cli) -> None:
    ran = cli("status")
    assert ran.code == 0
    assert "? The platform is down ./twofold up" in ran.out
    assert "flights.departures" in ran.out


def test_status_as_json_has_every_part_even_when_all_are_down(cli: Cli) -> None:
    document = cli("status", "--json").document
    assert document["processes"] == []
    assert document["queries"] == []
    assert [len(topic["partitions"]) for topic in document["topics"]] == [
        topic.partitions for topic in registry.load().topics.values()
    ]
    assert all(p["lag"] is None for topic in document["topics"] for p in topic["partitions"])
    assert [symptom["kind"] for symptom in document["symptoms"]] == ["platform-down"]


def audited(unexplained: int) -> None:
    """A ledger that tells of one audit, of a twentieth of a table."""
    ledgers = Ledgers(Lake(Settings.from_environment()))
    ledgers.ensure()
    found = Audited(table="flights.flights", run="audit-1", turn=3, of=20, rows=1_234, unexplained=unexplained)
    ledgers.record_audit(found, "f00d")


def test_a_table_shows_when_it_was_last_audited(cli: Cli) -> None:
    audited(unexplained=0)
    [audit] = [t["audit"] for t in cli("status", "--json").document["tables"] if t["name"] == "flights.flights"]
    assert (audit["turn"], audit["of"], audit["rows"], audit["all_since"]) == (3, 20, 1_234, None)
    assert cli("show", "flights.flights", "--json").document["audit"]["at"] == audit["at"]
    assert "part 4 of 20, 1,234 rows, all right" in cli("show", "flights.flights").out
    assert "never" in cli("status").out


def test_damage_that_an_audit_found_is_a_problem_until_it_is_repaired(cli: Cli) -> None:
    audited(unexplained=2)
    [found, _] = cli("status", "--json").document["symptoms"]
    assert found["text"] == "flights.flights: audits found 2 rows that nothing explains"
    assert "2 wrong" in " ".join(cli("status").out.split())
    assert "2 that nothing explains" in cli("show", "flights.flights").out


def test_a_query_that_has_failed_is_a_symptom_until_nothing_declares_it(cli: Cli, home: Path) -> None:
    settings = Settings(home=home)
    write(settings, Progress(domain="flights", query="flights", error="sums a column that is not there"))
    write(settings, Progress(domain="flights", query="gone", error="of a table that is declared no more"))
    ran = cli("doctor", "--json")
    texts = [symptom["text"] for symptom in ran.document["symptoms"]]
    assert texts == ["flights.flights has failed: sums a column that is not there", "The platform is down"]
    assert ran.code == 1


def test_a_file_with_a_fault_is_reported_and_hides_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = BadDeclaration("tables/flights/new.py, line 3: invalid syntax.")
    declared = replace(registry.load(), faults={"flights.new": fault})
    monkeypatch.setattr(registry, "load", lambda: declared)
    document = cli("status", "--json").document
    assert fault.message in [symptom["text"] for symptom in document["symptoms"]]
    assert len(document["tables"]) == len(registry.load().tables)
