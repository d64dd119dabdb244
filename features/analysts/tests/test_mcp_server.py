"""An assistant's view of the tables, by the protocol, and that it cannot change anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests import ROOT
from twofold.features.analysts import mcp_server
from twofold.features.analysts.analytics_file import write_analytics
from twofold.features.analysts.mcp_server import make_server
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry, load

HOURS = "flights.delays_by_hour"
Call = Callable[..., Any]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A home with one table of flights, which has 300 rows."""
    settings = Settings.from_environment({"TWOFOLD_HOME": str(tmp_path / "home")})
    columns = {"origin": [f"A{n:03}" for n in range(300)], "flights": pa.array(range(300), pa.int64())}
    hour = pa.array([datetime(2013, 1, 1, tzinfo=UTC)] * 300, pa.timestamp("us", "UTC"))
    with_changes = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(Lake(settings).uri(HOURS), pa.table({**columns, "hour": hour}), configuration=with_changes)
    write_analytics(settings, load().restricted_to(["flights"]))
    return settings


@pytest.fixture
def call(settings: Settings) -> Call:
    return lambda tool, **arguments: calling(make_server(settings), (tool, arguments))[0]


def calling(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What tools returned; the text of an error."""
    from mcp.client import Client

    async def ask() -> list[Any]:
        async with Client(server) as client:
            return [await client.call_tool(tool, arguments) for tool, arguments in calls]

    texts = [(result.is_error, result.content[0].text if result.content else "null") for result in anyio.run(ask)]
    return [text if is_error else json.loads(text) for is_error, text in texts]


def test_the_dictionary_says_what_columns_hold(call: Call) -> None:
    [table] = call("dictionary", table=HOURS).values()
    assert table["description"] == "Departure delays by origin airport and hour."
    assert table["columns"] == {
        "origin": "VARCHAR: airport of departure, IATA code",
        "flights": "BIGINT: departures in the hour",
        "hour": "TIMESTAMP WITH TIME ZONE: start of the hour",
    }
    assert list(call("dictionary")) == [HOURS]


def test_a_query_has_its_first_rows(call: Call) -> None:
    found = call("query", sql="FROM delays_by_hour ORDER BY flights")
    row = {"origin": "A007", "flights": 7, "hour": "2013-01-01T00:00:00+00:00"}
    assert (len(found["rows"]), found["rows"][7], found["more"]) == (200, row, True)
    assert call("query", sql="SELECT version FROM freshness")["rows"] == [{"version": 0}]
    total = call("query", sql="SELECT sum(flights) AS n FROM flights.delays_by_hour")
    assert total == {"rows": [{"n": 44850}], "more": False}


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("DROP VIEW main.delays_by_hour", "Expected one SELECT; found DROP"),
        ("SELECT 1; SELECT 2", "Expected one SELECT; found SELECT, SELECT"),
        ("COPY (SELECT 1) TO '{home}/file.csv'", "Expected one SELECT; found COPY"),
        ("SET enable_external_access = true", "Expected one SELECT; found SET"),
        ("SELECT * FROM read_text('/etc/passwd')", "Permission Error"),
        ("FROM delta_scan('https://localhost:9/4711')", "delta_scan: tables are read only by their names"),
        ("FROM query('SELECT 1')", "query: tables are read only by their names"),
        ("SELECT * FROM nothing", "Catalog Error"),
        ("SELEC 1", "Parser Error"),
    ],
)
def test_a_query_that_does_more_than_read_the_tables_is_refused(
    call: Call, settings: Settings, sql: str, says: str
) -> None:
    assert says in call("query", sql=sql.format(home=settings.home))
    assert not (settings.home / "file.csv").exists()
    assert call("query", sql="SELECT count(*) AS n FROM delays_by_hour")["rows"] == [{"n": 300}]


def test_an_answer_has_a_megabyte_at_most(call: Call) -> None:
    found = call("query", sql="SELECT repeat('x', 300_000) AS x FROM range(9)")
    assert (len(found["rows"]), found["more"]) == (3, True)
    assert "The first row has more than 1,000,000 bytes" in call("query", sql="SELECT repeat('x', 1_000_000) AS x")


def test_a_query_that_takes_too_long_is_ended(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "LONGEST_S", 0.2)
    endless = "SELECT max(hash(a.range + b.range)) FROM range(100_000_000) a, range(100_000_000) b"
    assert "took longer than 0.2 s" in call("query", sql=endless)


def test_a_file_that_was_replaced_is_seen_at_once(call: Call, settings: Settings) -> None:
    write_deltalake(Lake(settings).uri("rail.delays"), pa.table({"train": [7]}))
    assert "Catalog Error" in call("query", sql="FROM rail.delays")
    write_analytics(settings, Registry({}, {}))
    assert call("query", sql="FROM rail.delays")["rows"] == [{"train": 7}]


def test_what_commands_say_is_handed_on(call: Call) -> None:
    assert call("plans") == {"answer": []}
    story = call("why", table=HOURS, key={"origin": "A007", "hour": "2013-01-01T00:00"})
    assert isinstance(story, dict), story
    assert story["answer"]["key"]["origin"] == "A007"
    assert "has no row" in call("why", table=HOURS, key={"origin": "XXX", "hour": "2013-01-01T00:00"})
    assert "begins with a dash" in call("late", table="--help")


@pytest.mark.platform
def test_the_command_serves_a_program_over_its_pipes(settings: Settings) -> None:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    environment = {**os.environ, **settings.environment()}
    server = StdioServerParameters(command=str(ROOT / "twofold"), args=["mcp"], env=environment, cwd=ROOT)
    greatest = ("query", {"sql": "SELECT max(origin) AS o FROM delays_by_hour"})
    large = ("query", {"sql": "SELECT length(repeat('x', 3_000_000_000)) AS n"})
    found, refused, again = calling(stdio_client(server), greatest, large, greatest)
    assert found["rows"] == again["rows"] == [{"o": "A299"}]
    assert "took more memory than it may" in refused
