"""DuckDB over Delta tables."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cli.conftest import Cli, at
from tests.tables.declared import a_table
from twofold.features.analysts.analytics_file import write_analytics
from twofold.features.analysts.sql_query import Analyst
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.streaming.query.progress import Progress, read, write
from twofold.tables.declare.registry import Registry
from twofold_algebra.sql.names import DUCKDB

pytestmark = pytest.mark.usefixtures("lake")


def test_a_table_is_found_by_its_full_name_and_by_its_bare_name(cli: Cli) -> None:
    by_full_name = cli("sql", "SELECT sum(flights) AS n FROM flights.hours", "--json")
    by_bare_name = cli("sql", "SELECT sum(flights) AS n FROM hours", "--json")
    assert by_full_name.document == by_bare_name.document == [{"n": 3}]


def test_a_bare_name_that_two_domains_share_is_no_table(cli: Cli) -> None:
    assert cli("sql", "FROM rail.delays", "--json").document == [{"train": 7}]
    ran = cli("sql", "FROM delays")
    assert ran.code == 2
    assert "flights.delays" in ran.err
    assert "rail.delays" in ran.err


def test_json_keeps_types_and_nulls_and_writes_times_in_utc(cli: Cli) -> None:
    ran = cli("sql", "FROM hours ORDER BY mean_delay_min NULLS LAST", "--json")
    assert ran.code == 0
    assert list(ran.document[0].values()) == ["JFK", "2013-01-01T10:00:00+00:00", -2.0, 1]
    assert ran.document[2] == {"origin": "JFK", "hour": None, "mean_delay_min": None, "flights": 0}


def test_csv_has_a_header_and_every_row(cli: Cli) -> None:
    rows = list(csv.reader(io.StringIO(cli("sql", "FROM range(20001)", "--csv").out)))
    assert rows[0] == ["range"]
    assert rows[-1] == ["20000"]
    assert len(rows) == 20_002


def test_rows_that_a_delta_commit_deleted_are_not_seen(cli: Cli, lake: Path) -> None:
    DeltaTable(lake / "flights" / "hours").delete("origin = 'JFK'")
    assert cli("sql", "SELECT origin FROM hours", "--json").document == [{"origin": "EWR"}]


def test_heartbeats_of_an_idle_topic_are_no_events(cli: Cli, lake: Path) -> None:
    events = pa.table({"id": ["a", None], "_offset": [7, None], "_late_by_ms": pa.nulls(2, pa.int64())})
    write_deltalake(lake / "house" / "doors", events)
    assert cli("sql", "SELECT id, _offset FROM house.doors", "--json").document == [{"id": "a", "_offset": 7}]
    assert cli("sql", "SELECT count(*) AS n FROM doors", "--json").document == [{"n": 1}]


def test_rows_are_those_of_the_newest_version(cli: Cli, lake: Path) -> None:
    write_deltalake(lake / "rail" / "delays", pa.table({"train": [8]}), mode="append")
    assert cli("sql", "SELECT max(train) AS t FROM rail.delays", "--json").document == [{"t": 8}]


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO '{file}'",
        "INSERT INTO flights.hours SELECT * FROM flights.hours",
        "CREATE TABLE mine AS SELECT 1",
        "ATTACH '{file}'",
        "SELECT 1; COPY (SELECT 1) TO '{file}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}'",
        "/* */ explain (format json) COPY (SELECT 1) TO '{file}'",
        "PRAGMA profiling_output = '{file}'",
    ],
)
def test_a_statement_that_writes_is_refused(cli: Cli, tmp_path: Path, statement: str) -> None:
    file = tmp_path / "written"
    ran = cli("sql", statement.format(file=file))
    assert ran.code == 2
    assert "only read here" in ran.err
    assert not file.exists()


@pytest.mark.parametrize("query", ["SELECT * FROM read_text('{file}')", "FROM '{file}'"])
def test_no_file_but_those_of_the_lake_is_read(cli: Cli, tmp_path: Path, query: str) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a,b\n1,2\n")
    ran = cli("sql", query.format(file=file))
    assert ran.code == 2
    assert "configuration" in ran.err
    assert cli("sql", "--file", str(file), f"FROM '{file}'", "--json").document == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    "statement",
    [
        "FROM delta_scan('{table}')",
        "WITH own AS (SELECT * FROM \"Delta_Scan\"('{table}')) SELECT (SELECT count(*) FROM own)",
        "SELECT * FROM delta_list_files('{table}')",
        "SUMMARIZE FROM delta_scan('{table}')",
        "EXPLAIN SELECT * FROM delta_scan('{table}')",
        "SET VARIABLE found = (SELECT count(*) FROM delta_scan('{table}'))",
        "FROM query('FROM del' || 'ta_scan(''{table}'')')",
        "SELECT 1; FROM delta_scan('{table}')",
    ],
)
def test_a_table_outside_the_lake_is_not_opened_by_its_address(cli: Cli, tmp_path: Path, statement: str) -> None:
    write_deltalake(tmp_path / "other", pa.table({"secret": [4711]}))
    ran = cli("sql", statement.format(table=tmp_path / "other"))
    assert ran.code == 2
    assert "read only by their names" in ran.err
    assert "4711" not in ran.out


def test_a_query_that_is_hidden_in_its_tree_is_refused(cli: Cli, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "other", pa.table({"secret": [4711]}))
    text = f"FROM delta_scan('{tmp_path / 'other'}')"
    [(tree,)] = duckdb.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    literal = DUCKDB.literal(tree)
    for statement in (f"PRAGMA json_execute_serialized_sql({literal})", f"FROM json_execute_serialized_sql({literal})"):
        ran = cli("sql", statement)
        assert (ran.code, "read only by their names" in ran.err) == (2, True)


def test_a_variable_is_set_and_read(cli: Cli) -> None:
    """As the page about captured databases does it."""
    statements = "SET VARIABLE n = (SELECT sum(flights) FROM hours); SELECT getvariable('n') AS n;"
    assert cli("sql", statements, "--json").document == [{"n": 3}]


def test_a_query_that_takes_more_memory_than_it_may_is_ended(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_QUERY_MEMORY_MB", "50")
    ran = cli("sql", "SELECT len(list(range)) FROM range(100_000_000)")
    assert ran.code == 2
    assert "Out of Memory" in ran.err
    assert "TWOFOLD_QUERY_MEMORY_MB gives queries more" in ran.err


def test_queries_that_spill_at_once_have_files_of_their_own(tmp_path: Path) -> None:
    lake = Lake(Settings(home=tmp_path, query_memory_mb=100))
    ordered = (
        "FROM (SELECT hash(range) AS h, range AS n, repeat('x', 20) AS x FROM range({})) ORDER BY h LIMIT 1 OFFSET {}"
    )
    one, other = Analyst(lake), Analyst(lake)
    first, second = (analyst.run(ordered.format(2_000_000, 1_000_000)) for analyst in (one, other))
    places = [analyst.rows("SELECT current_setting('temp_directory')") for analyst in (Analyst(lake), Analyst(lake))]
    assert places[0] != places[1]
    assert first.fetchall() == second.fetchall()
    assert not list(tmp_path.glob("*tmp*"))


def test_a_query_is_explained(cli: Cli, lake: Path) -> None:
    assert "analyzed_plan" in cli("sql", "EXPLAIN ANALYZE SELECT * FROM rail.delays", "--json").out


def test_a_mistake_in_the_query_is_one_message(cli: Cli) -> None:
    ran = cli("sql", "SELEC 1")
    assert ran.code == 2
    assert 'syntax error at or near "SELEC"' in ran.err
    assert "Traceback" not in ran.err


def test_json_and_csv_exclude_each_other(cli: Cli) -> None:
    assert cli("sql", "SELECT 1", "--json", "--csv").code == 2


def test_text_that_looks_like_markup_is_printed_as_it_is(cli: Cli) -> None:
    assert "[red]x[/]" in cli("sql", "SELECT '[red]x[/]' AS v").out


def test_a_result_that_is_too_wide_is_printed_a_column_a_line(cli: Cli) -> None:
    ran = cli("sql", "SELECT " + ", ".join(f"'{'x' * 40}' AS c{n}" for n in range(4)))
    assert [line.split()[0] for line in ran.out.splitlines()[:4]] == ["c0", "c1", "c2", "c3"]


def test_the_prompt_answers_long_statements_and_survives_mistakes(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter([".tables", "SELECT sum(flights)", "FROM hours;", "SELEC 1;", "FROM rail.delays;", ".quit"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    ran = cli("sql")
    assert ran.code == 0
    lines = [line.strip() for line in ran.out.splitlines()]
    assert "rail.delays" in lines
    assert "3" in lines
    assert "7" in lines
    assert "syntax error" in ran.err


def test_a_query_can_come_through_a_pipe(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 40 + 2 AS answer"))
    assert cli("sql", "--json").document == [{"answer": 42}]


def test_a_file_has_the_rows_and_says_what_they_were_made_of(cli: Cli, lake: Path, tmp_path: Path) -> None:
    table = DeltaTable(lake / "flights" / "hours")
    table.alter.set_table_properties({"twofold.code": json.dumps({"code": "0123456789ab"})}, raise_if_not_exists=False)
    query = "SELECT hour, list_value(flights) AS n FROM Hours -- of delays\nWHERE flights > 0 ORDER BY flights"
    expected = [{"hour": at("2013-01-01T10:00"), "n": [flights]} for flights in (1, 2)]
    before = datetime.now(UTC)
    for suffix, read_file in (("parquet", pq.read_table), ("arrow", read_arrow)):
        file = tmp_path / f"out.{suffix}"
        ran = cli("sql", query, "--to", str(file), "--json")
        found = read_file(file)
        facts = json.loads(found.schema.metadata[b"twofold"])
        assert found.to_pylist() == expected
        assert facts["query"] == query
        assert before <= datetime.fromisoformat(facts["written_at"]) <= datetime.now(UTC)
        assert facts["tables"] == {"flights.hours": {"version": 1, "fingerprint": "0123456789ab"}}
        assert ran.document == {"file": str(file), "rows": 2, **facts}
    cli("sql", query, "--to", str(tmp_path / "out.csv"))
    assert (tmp_path / "out.csv").read_text() == cli("sql", query, "--csv").out
    said = json.loads((tmp_path / "out.csv.json").read_text())
    assert (said["query"], said["tables"]) == (query, facts["tables"])
    assert sorted(path.name for path in tmp_path.glob("*out*")) == [
        "out.arrow",
        "out.csv",
        "out.csv.json",
        "out.parquet",
    ]


def test_a_file_is_of_the_versions_that_it_names(lake: Path) -> None:
    analyst = Analyst(Lake(Settings.from_environment()), pinned=True)
    write_deltalake(lake / "rail" / "delays", pa.table({"train": [8]}), mode="append")
    assert analyst.rows("FROM rail.delays") == [(7,)]
    assert analyst.read_by('SELECT 1 FROM "rail"."delays"') == {"flights.delays": 0, "rail.delays": 0}


@pytest.mark.parametrize("name", ["out.xlsx", "out", "there.csv"])
def test_a_file_that_cannot_be_written_is_refused_before_the_query(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "there.csv").write_text("mine")
    ran = cli("sql", "FROM nothing", "--to", str(tmp_path / name))
    assert (ran.code, "--to" in ran.err) == (2, True)
    assert (tmp_path / "there.csv").read_text() == "mine"


def test_a_query_that_fails_leaves_no_file(cli: Cli, tmp_path: Path) -> None:
    ran = cli("sql", "SELECT (flights - 3)::UTINYINT FROM hours", "--to", str(tmp_path / "out.csv"))
    assert ran.code != 0
    assert list(tmp_path.glob("*out*")) == []


def test_sql_has_the_views_of_the_file_for_analysts(cli: Cli) -> None:
    settings = Settings.from_environment()
    table = replace(a_table(), domain="flights", closes_at="hour")
    write_analytics(settings, Registry({}, {"flights.hours": table}))
    columns = cli("sql", 'SELECT "column" FROM dictionary WHERE "table" = \'rail.delays\'', "--json").document
    assert columns == [{"column": "train"}]
    assert cli("sql", "SELECT count(*) AS n FROM at_version('rail.delays', 0)", "--json").document == [{"n": 1}]
    assert cli("sql", "SELECT train FROM analytics.rail.delays", "--json").document == [{"train": 7}]
    assert cli("sql", 'SELECT "table", version FROM freshness', "--json").document == [
        {"table": "flights.hours", "version": 0}
    ]
    write(settings, Progress(domain="flights", query="hours", watermark=at("2013-01-01T11:00")))
    assert cli("sql", "SELECT sum(flights) AS n FROM analytics.flights.hours_final", "--json").document == [{"n": 3}]
    assert read(settings) == read(settings, "flights"), "the views' own file is no stream's"


def read_arrow(file: Path) -> pa.Table:
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_file(source).read_all()
