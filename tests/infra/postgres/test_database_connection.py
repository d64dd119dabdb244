"""A real PostgreSQL: values are parameters, rows have Python's types, errors name the server and no secret."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import psycopg
import pytest

from tests.infra.conftest import free_port
from tests.support.postgres import Server
from tests.support.sql_script import statements
from twofold.infra.errors import DatabaseUnreachable, StatementRefused
from twofold.infra.postgres import database_connection
from twofold.infra.postgres.database_connection import address, connected, password, query
from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.platform


def test_an_address_of_yours_is_read_and_what_it_lacks_is_the_usual(settings: Settings) -> None:
    def read(url: str) -> tuple[object, ...]:
        return address(replace(settings, database=url))

    assert read("postgresql://me:p%40ss@db:6543/shop") == ("db", 6543, "me", "p@ss", "shop")
    assert read("postgresql://db") == ("db", 5432, "twofold", "", "postgres")


@pytest.fixture(scope="module")
def server(postgres: Server) -> Settings:
    return postgres.with_tables("CREATE TABLE people (id int PRIMARY KEY, name text)")


@pytest.fixture
def database(server: Settings) -> Settings:
    query(server, "TRUNCATE people")
    return server


def test_a_database_runs_in_a_home_that_is_closed_to_others(server: Settings) -> None:
    assert server.home.parent.stat().st_mode & 0o077 == 0
    assert query(server, "SHOW wal_level") == [("logical",)]


def test_rows_have_the_types_of_their_columns(database: Settings) -> None:
    select = "SELECT 1, 'a|b', NULL::text, 0.10::numeric, true, ARRAY['x', NULL], timestamptz '2020-01-01 00:00+02'"
    at = datetime(2019, 12, 31, 22, tzinfo=UTC)
    assert query(database, select) == [(1, "a|b", None, Decimal("0.10"), True, ["x", None], at)]
    assert query(database, "SELECT 1 WHERE false") == []


def test_values_are_no_part_of_a_statement(database: Settings) -> None:
    name = "'); DROP TABLE people; -- 100%"
    assert query(database, "INSERT INTO people VALUES (%s, %s)", [1, name]) == []
    assert query(database, "SELECT name FROM people WHERE name = %(name)s", {"name": name}) == [(name,)]


def test_without_values_a_percent_sign_is_only_that(database: Settings) -> None:
    assert query(database, "SELECT 7 % 4, 'x' LIKE '%s'") == [(3, False)]


def test_each_statement_commits_and_a_transaction_commits_all_or_nothing(database: Settings) -> None:
    def write() -> None:
        with connected(database) as connection:
            connection.execute("INSERT INTO people VALUES (1, 'alone')")
            with connection.transaction():
                connection.execute("INSERT INTO people VALUES (2, 'together')")
                connection.execute("INSERT INTO people VALUES (1, 'again')")

    with pytest.raises(StatementRefused, match="duplicate key"):
        write()
    assert query(database, "SELECT id FROM people") == [(1,)]
    with pytest.raises(StatementRefused):
        query(database, "INSERT INTO people VALUES (3); INSERT INTO people VALUES (1)")
    assert query(database, "SELECT id FROM people") == [(1,)]


def test_what_is_left_open_when_the_block_ends_is_rolled_back(database: Settings) -> None:
    with connected(database) as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO people VALUES (1)")
    assert query(database, "SELECT id FROM people") == []


def test_a_refused_statement_is_named_with_its_server_and_what_it_says(database: Settings) -> None:
    with pytest.raises(StatementRefused) as refused:
        query(database, "SELECT age\n   FROM people WHERE name = %s", ["the-value"])
    said = str(refused.value)
    assert f"The database postgres at 127.0.0.1:{database.database_port} refuses a statement: column" in said
    assert 'column "age" does not exist' in said
    assert "In: SELECT age FROM people WHERE name = %s" in said
    assert "the-value" not in said
    assert refused.value.__cause__ is None
    assert not refused.value.retryable


_RAISES = """CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF NEW.id = 3 THEN RAISE 'no %', NEW.name; END IF; RETURN NEW; END $$;
    CREATE TRIGGER refused BEFORE INSERT ON mails FOR EACH ROW EXECUTE FUNCTION refuse()"""


def copy_cut_short(database: Settings) -> None:
    with (
        connected(database) as connection,
        connection.cursor() as cursor,
        cursor.copy("COPY mails (id, name) FROM STDIN") as copy,
    ):
        copy.write("4\t19004\n5\t1900")
        raise psycopg.DataError


def test_neither_an_error_nor_the_log_of_the_server_quotes_a_row(postgres: Server, database: Settings) -> None:
    columns = "id int PRIMARY KEY CHECK (id > 0), name text, born int GENERATED ALWAYS AS (name::int) STORED"
    query(database, f"DROP TABLE IF EXISTS mails; CREATE TABLE mails ({columns}); {_RAISES}")
    before, said = postgres.log.stat().st_size, []
    for id, name in ((0, "19001"), (1, "ann@b.c"), (3, "19003")):
        with pytest.raises(StatementRefused) as refused:
            query(database, "INSERT INTO mails VALUES (%s, %s)", [id, name])
        said.append(str(refused.value))
    assert ["(23514)" in said[0], "(22P02)" in said[1], "(P0001)" in said[2]] == [True] * 3
    with pytest.raises(StatementRefused) as interrupted:
        copy_cut_short(database)
    assert not any(value in text for text in (*said, str(interrupted.value)) for value in ("1900", "ann@b.c"))
    log = postgres.log.read_text()[before:]
    assert "COPY from stdin failed" in log
    assert "19004" not in log
    assert "19001" not in log


def test_a_statement_ends_after_its_time(database: Settings) -> None:
    with pytest.raises(StatementRefused, match="statement timeout"):
        query(database, "SELECT pg_sleep(30)", timeout_s=0.2)


@pytest.mark.parametrize("is_between_statements", [True, False])
def test_a_connection_that_ends_is_a_server_that_does_not_answer(
    database: Settings, is_between_statements: bool
) -> None:
    def end() -> None:
        with connected(database) as connection:
            [(own,)] = connection.execute("SELECT pg_backend_pid()")
            if is_between_statements:
                query(database, "SELECT pg_terminate_backend(%s, 5000)", [own])
            connection.execute("SELECT pg_terminate_backend(%s)", [own])

    with pytest.raises(DatabaseUnreachable, match="terminating connection"):
        end()


def test_a_server_that_says_nothing_is_given_up(database: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_connection, "_SILENCE_S", 0.2)

    def ask_frozen() -> None:
        with connected(database, timeout_s=0.1) as connection, connection.transaction():
            [(own,)] = connection.execute("SELECT pg_backend_pid()")
            os.kill(own, signal.SIGSTOP)
            try:
                connection.execute("SELECT 1")
            finally:
                os.kill(own, signal.SIGCONT)

    with pytest.raises(DatabaseUnreachable, match="timeout"):
        ask_frozen()


def test_a_server_that_is_not_there_is_named_with_what_to_do(settings: Settings) -> None:
    nowhere = replace(settings, database=f"postgresql://me:the-secret@127.0.0.1:{free_port()}/shop")
    with pytest.raises(
        DatabaseUnreachable, match=r"The database shop at 127\.0\.0\.1:\d+ does not answer me"
    ) as failed:
        query(nowhere, "SELECT 1")
    assert "./twofold up" in str(failed.value)
    assert "the-secret" not in f"{failed.value!r} {failed.value}"
    assert failed.value.retryable


def test_a_refused_password_is_not_printed(database: Settings) -> None:
    port, wrong = database.database_port, f"wrong-{password(database)}"
    with pytest.raises(DatabaseUnreachable, match="password authentication failed") as failed:
        query(replace(database, database=f"postgresql://twofold:{wrong}@127.0.0.1:{port}/postgres"), "SELECT 1")
    assert password(database) not in str(failed.value)


def test_a_script_is_split_where_nothing_is_quoted() -> None:
    script = "SELECT ';', \";\";\n DO $$BEGIN; END$$; DO $a$ $$;$$ $a$;;SELECT 'it''s;'\n"
    expected = ["SELECT ';', \";\"", "DO $$BEGIN; END$$", "DO $a$ $$;$$ $a$", "SELECT 'it''s;'"]
    assert statements(script) == expected
