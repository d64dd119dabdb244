"""Runs statements in PostgreSQL, the captured database or another one, and returns their rows as Python values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg.abc import RV, Params, PQGen
from psycopg.abc import QueryNoTemplate as Query
from psycopg.rows import TupleRow

from twofold.infra import COMMAND
from twofold.infra.errors import DatabaseUnreachable, StatementRefused
from twofold.infra.process.ports import HOST
from twofold.infra.process.secret_files import ensure_secret
from twofold.infra.project.settings import Settings

USER = "twofold"
DATABASE = "postgres"
_CONNECT_S = 5
_SILENCE_S = 5  # beyond the time of a statement, until a server that says nothing is given up
_SHOWN = 200  # characters of a statement
_QUOTING = ("22", "P0")
"""Classes of errors whose message can quote a value: of data, and those that a function raises."""


class Address(NamedTuple):
    """The host, port, user, password and name of a database, by libpq's names."""

    host: str
    port: int
    user: str
    password: str
    dbname: str


class Connection(psycopg.Connection[TupleRow]):
    """A connection that fails if its server is silent for too long; errors have a note with the statement."""

    answer_s: float | None = None

    def execute(self, query: Any, *values: Any, **options: Any) -> psycopg.Cursor[TupleRow]:
        try:
            return super().execute(query, *values, **options)
        except psycopg.Error as error:
            text = query.as_string(self) if isinstance(query, psycopg.sql.Composable) else str(query)
            error.add_note(f"In: {' '.join(text.split())[:_SHOWN]}")
            raise

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        try:
            return super().wait(gen, interval, timeout or self.answer_s)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
                self.pgconn.finish()
            raise


def address(settings: Settings) -> Address:
    """Returns the address of the captured database: the one in the settings, else the supervised one."""
    return parsed_address(settings.database) if settings.database else supervised_address(settings)


def supervised_address(settings: Settings, dbname: str = DATABASE) -> Address:
    """Returns the address of a database of the supervised server."""
    return Address(HOST, settings.database_port, USER, password(settings), dbname)


def parsed_address(url: str) -> Address:
    """Reads an address, `postgresql://user:password@host:port/name`; parts that it lacks are the usual ones."""
    at = urlsplit(url)
    user, secret = unquote(at.username or USER), unquote(at.password or "")
    return Address(at.hostname or HOST, at.port or 5432, user, secret, at.path.lstrip("/") or DATABASE)


def password(settings: Settings) -> str:
    """Returns the password of the supervised database, generated once."""
    return ensure_secret(password_file(settings))


def password_file(settings: Settings) -> Path:
    """Returns the file that has it."""
    return settings.home / "database-password"


def query(settings: Settings, sql: Query, values: Params | None = None, *, timeout_s: float = 30) -> list[TupleRow]:
    """Runs a statement and returns its rows; empty if it has no result.

    Args:
        sql: several statements, without values, are one transaction; the rows are those of the first.
        values: for the placeholders `%s` or `%(name)s`; without values a percent sign has no meaning.

    Raises:
        DatabaseUnreachable, StatementRefused: as `connected`.
    """
    with connected(settings, timeout_s=timeout_s) as connection:
        cursor = connection.execute(sql, values)
        return cursor.fetchall() if cursor.description else []


def connected(settings: Settings, *, timeout_s: float = 30) -> AbstractContextManager[Connection]:
    """Opens a connection to the captured database, as `connected_to`."""
    hint = f"TWOFOLD_DATABASE names one of yours. `{COMMAND} up` starts ours once a topic that runs captures a table."
    return connected_to(address(settings), timeout_s=timeout_s, hint=hint)


@contextmanager
def connected_to(at: Address, *, timeout_s: float = 30, hint: str) -> Iterator[Connection]:
    """Opens a connection in which each statement commits, unless a block of its `transaction()` does.

    Args:
        timeout_s: the server cancels a statement after this time.
        hint: of the error if it does not answer.

    Raises:
        DatabaseUnreachable: no server answers, it refuses the user, or it ends meanwhile. Retryable.
        StatementRefused: a statement fails; names it, without its parameters, and quotes no row.
    """
    connection = None
    place = f"The database {at.dbname} at {at.host}:{at.port}"
    options = f"-c timezone=UTC -c statement_timeout={1000 * timeout_s:.0f}"
    try:
        connection = Connection.connect(**at._asdict(), autocommit=True, connect_timeout=_CONNECT_S, options=options)
        connection.answer_s = timeout_s + _SILENCE_S
        yield connection
    except psycopg.Error as error:
        if connection is None or connection.closed or isinstance(error, psycopg.errors.AdminShutdown):
            raise DatabaseUnreachable(
                f"{place} does not answer {at.user}: {_quoting_no_row(error)}", hint=hint
            ) from None
        notes = "\n".join(getattr(error, "__notes__", ()))
        raise StatementRefused(f"{place} refuses a statement: {_quoting_no_row(error)}\n{notes}") from None
    finally:
        if connection is not None:
            connection.close()


def _quoting_no_row(error: psycopg.Error) -> str:
    """Returns the message and the code of a server's error, or what its message can hold."""
    code, message = error.diag.sqlstate, error.diag.message_primary
    if code is None:
        return str(error)
    return f"{'its message can quote a row' if code.startswith(_QUOTING) else message} ({code})"
