"""How the commands that explain, and the one that repairs, talk to people and to scripts."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from tests.cli.conftest import Cli
from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.plan.plan import Plan, TableChange
from twofold.cli.parsing import parse_key
from twofold.infra.errors import BadArgument

SCHEMA = pa.schema(
    [
        ("origin", pa.string()),
        ("hour", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("flight", pa.int32()),
        ("share", pa.float64()),
    ]
)


def test_a_key_is_read_by_the_types_of_its_columns() -> None:
    words = ["hour=2013-01-05T14:00", "origin=a=b", "day=2013-01-05", "flight=17", "share=0.5"]
    assert parse_key(words, ["origin", "hour", "day", "flight", "share"], SCHEMA) == {
        "origin": "a=b",
        "hour": datetime(2013, 1, 5, 14, tzinfo=UTC),
        "day": date(2013, 1, 5),
        "flight": 17,
        "share": 0.5,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["JFK"], "'JFK': expected column=value"),
        (["origin=JFK", "carrier=UA"], "'carrier' is no column of the key"),
        (["origin=JFK"], "The key misses flight"),
        (["origin=JFK", "flight=x"], "flight='x': expected a number"),
    ],
)
def test_a_key_that_cannot_be_meant_is_refused_with_its_form(words: list[str], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        parse_key(words, ["origin", "flight"], SCHEMA)


@pytest.mark.parametrize("arguments", [["why", "delay_by_hour", "origin=JFK"], ["late", "delay_by_hour"]])
def test_a_table_that_is_not_there_names_what_is_near(cli: Cli, arguments: list[str]) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert "Did you mean 'delays_by_hour'?" in ran.err


def test_before_the_platform_ran_the_commands_say_what_makes_its_tables(cli: Cli) -> None:
    for ran in (cli("why", "delays_by_hour", "origin=JFK", "hour=2013-01-01"), cli("late", "delays_by_hour")):
        assert ran.code == 2
        assert "./twofold up" in ran.err


@pytest.mark.parametrize("arguments", [["--repair"], ["--repair", "--json"]])
def test_a_repair_without_a_terminal_to_ask_is_refused(cli: Cli, arguments: list[str]) -> None:
    ran = cli("reconcile", *arguments)
    assert ran.code == 2
    assert "--yes" in (ran.err or ran.out)


@pytest.mark.parametrize(
    ("options", "answer", "is_published"),
    [([], "y", True), ([], "n", False), (["--yes"], None, True), (["--preview"], None, False)],
)
def test_a_repair_shows_the_rows_and_asks(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, options: list[str], answer: str | None, is_published: bool
) -> None:
    sample = {"change": "update", "key": {"origin": "A"}, "values": {"flights": [99, 3]}}
    change = TableChange(
        table="flights.x", cause="repair", version=1, rows_before=9, updated=1, summary={"samples": [sample]}
    )
    now = datetime.now(UTC)
    plan = Plan(id="repair-1", cause="repair", command=["reconcile"], created_at=now, expires_at=now, changes=[change])
    published: list[tuple[str, str]] = []

    def publish(_: object, name: str, person: str, because: str) -> list[RunResult]:
        published.append((name, person))
        return [RunResult(table="flights.x", cause="repair", run="repair", updated=1)]

    monkeypatch.setattr("twofold.batch.reconcile.reconcile", lambda *_, **__: [])
    monkeypatch.setattr("twofold.tables.refresh.open_platform.opened", lambda *_: nullcontext())
    monkeypatch.setattr("twofold.batch.plan.planning.make_plan", lambda *_, **__: plan)
    monkeypatch.setattr("twofold.batch.plan.publisher.publish_plan", publish)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question: answer == "y")
    ran = cli("reconcile", "--repair", *options, "--approved-by", "ada")
    assert published == ([("repair-1", "ada")] if is_published else [])
    assert "1 of 9 rows change: +0 added, -0 removed, ~1 changed, =8 unchanged" in ran.out
    assert "99 -> 3" in ran.out
