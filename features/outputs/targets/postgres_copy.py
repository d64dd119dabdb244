"""A copy of a table in PostgreSQL: its rows and its position change in one transaction."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from twofold.features.outputs.output_target import Target
from twofold.features.outputs.position import Position
from twofold.features.outputs.refused_rows import Refused, record_refused
from twofold.features.outputs.revealed_places import Place
from twofold.features.outputs.targets.postgres_output import COPIES
from twofold.features.outputs.targets.postgres_types import as_read, as_rows, as_texts, column_type
from twofold.infra import COMMAND
from twofold.infra.delta.delta_writer import BEFORE, CHANGE
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadSetting, WriteConflict
from twofold.infra.postgres.database_connection import (
    Connection,
    connected_to,
    parsed_address,
    supervised_address,
)
from twofold.infra.private_file import destination
from twofold.tables.declare.output import Output
from twofold.tables.output_view import KEY
from twofold_algebra.sql.names import POSTGRES

POSITIONS = "_twofold.outputs"
_TIMEOUT_S = 600.0
_ERASED_S = 86_400.0
"""As long as a large copy takes to be written again: what is cancelled would begin again, and no change come before."""
_LOCK_S = 10.0
"""So long an erasure waits for those who read the copy, since all others wait behind it."""
_CHANGES = "_changes"
_REFUSALS = (psycopg.DataError, psycopg.errors.ProgramLimitExceeded)
"""Errors of rows that PostgreSQL cannot hold: a NUL, a year beyond its own, a key too long for an index."""
_CREATE = """
CREATE SCHEMA IF NOT EXISTS _twofold;
CREATE TABLE IF NOT EXISTS _twofold.outputs
    (copy text PRIMARY KEY, owner text NOT NULL, columns text[] NOT NULL DEFAULT ARRAY[]::text[], position text);
"""


class PostgresCopy(Target):
    """A target in PostgreSQL, in the schema of the domain's name; each call opens a connection."""

    def __init__(self, lake: Lake, place: Place, output: Output) -> None:
        if output.destination:
            form = "postgresql://user:password@host:port/database"
            self.at = parsed_address(destination(lake.settings.destinations, output.destination, form))
        else:
            self.at = supervised_address(lake.settings, COPIES)
        self._lake, self._of, self.owner, self._reveal = lake, place, str(place), output.reveal
        self.place = POSTGRES.name(place.domain, place.output)

    def position(self) -> Position | None:
        with self._connected() as connection:
            if connection.execute("SELECT to_regclass(%s)", [POSITIONS]).fetchone() == (None,):
                return None
            row = connection.execute(
                f"SELECT owner, position FROM {POSITIONS} WHERE copy = %s", [self.place]
            ).fetchone()
            return self._known(row, self._types(connection))

    def send(self, changes: pa.Table, before: Position | None, after: Position) -> None:
        columns = [name for name in changes.column_names if name != CHANGE and not name.startswith(BEFORE)]
        changes = changes.select([*columns, CHANGE])
        refused: list[Refused] = []
        if before is not None and before.is_whole:
            self._erase_replaced()
        with self._connected() as connection, connection.transaction():
            earlier = self._locked(connection, before)
            self._shape(connection, changes.select(columns).schema, earlier)
            if len(changes):
                refused = self._change(connection, changes)
            if refused:
                record_refused(self._lake, self._of, after.ahead.version, refused)
            connection.execute(
                f"UPDATE {POSITIONS} SET columns = %s, position = %s WHERE copy = %s",
                [columns, after.text, self.place],
            )

    def sent(self, schema: pa.Schema, page: int, pages: int) -> pa.Table:
        with self._connected() as connection:
            types = self._types(connection)
            if not types:
                return schema.empty_table()
            columns = [as_read(f) if types.get(f.name) == column_type(f.type).name else "NULL" for f in schema]
            listed = ", ".join(columns).replace("%", "%%")
            number = f"('x' || substr(md5(convert_to({KEY}, 'UTF8')), 1, 8))::bit(32)::bigint"
            rows = connection.execute(f"SELECT {listed} FROM {self.place} WHERE {number} %% %s = %s", [pages, page])
            return as_rows(schema, rows.fetchall())

    def erase(self) -> None:
        with self._connected() as connection, connection.transaction():
            if connection.execute("SELECT to_regclass(%s)", [POSITIONS]).fetchone() == (None,):
                return
            ours = f"DELETE FROM {POSITIONS} WHERE copy = %s AND owner = %s"
            if connection.execute(ours, [self.place, self.owner]).rowcount:
                connection.execute(f"DROP TABLE IF EXISTS {self.place}")

    def _erase_replaced(self) -> None:
        """Writes the copy to new files: the old ones have values of persons who are forgotten, in rows replaced."""
        with self._connected(_ERASED_S) as connection:
            if types := self._types(connection):
                self._gather_nothing(connection, types)
                connection.execute(f"SET lock_timeout = {1000 * _LOCK_S:.0f}")
                connection.execute(f"VACUUM FULL {self.place}")

    @contextmanager
    def _connected(self, timeout_s: float = _TIMEOUT_S) -> Iterator[Connection]:
        hint = f"{COMMAND} up starts the supervised one; the file of TWOFOLD_DESTINATIONS has addresses of yours."
        with connected_to(self.at, timeout_s=timeout_s, hint=hint) as connection:
            yield connection

    def _known(self, row: Sequence[str | None] | None, types: Mapping[str, str]) -> Position | None:
        """Returns the position of a row of positions; None if the copy has none, or was dropped.

        Raises:
            BadSetting: the table is not the copy of this output.
        """
        if types and (row is None or row[0] != self.owner):
            whose = f"the copy of {row[0]}" if row else "no copy of a table"
            raise BadSetting(
                f"{self.owner}: {self.place} is in the database {self.at.dbname} at {self.at.host}, and is {whose}.",
                hint="Rename it there, or name the output otherwise: to_postgres(name=...).",
            )
        text = row[1] if row and types else None
        return Position.parsed(text) if text else None

    def _locked(self, connection: Connection, before: Position | None) -> Sequence[str]:
        """Locks the position until the transaction ends; returns the columns that were sent.

        Raises:
            WriteConflict: it is another one.
        """
        if connection.execute("SELECT to_regclass(%s)", [POSITIONS]).fetchone() == (None,):
            connection.execute(_CREATE)
        types = self._types(connection)
        added = connection.execute(
            f"INSERT INTO {POSITIONS} (copy, owner) VALUES (%s, %s) ON CONFLICT DO NOTHING", [self.place, self.owner]
        ).rowcount
        row = connection.execute(
            f"SELECT owner, position, columns FROM {POSITIONS} WHERE copy = %s FOR UPDATE", [self.place]
        ).fetchone()
        if self._known(None if added else row, types) != before:
            raise WriteConflict(
                f"{self.owner}: another process has moved the copy {self.place}.", hint="It is read again and goes on."
            )
        if not types:  # the copy of another output had this name, and was dropped
            connection.execute(f"UPDATE {POSITIONS} SET owner = %s WHERE copy = %s", [self.owner, self.place])
        return row[2] if row else []

    def _types(self, connection: Connection) -> dict[str, str]:
        """Maps the columns of the copy to their types; empty if there is no copy."""
        columns = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [self.place],
        )
        return dict(columns.fetchall())

    def _shape(self, connection: Connection, schema: pa.Schema, earlier: Sequence[str]) -> None:
        """Makes the copy have the columns of a schema; a column that is no longer sent stays, without values."""
        types = self._types(connection)
        if not types:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {POSTGRES.name(self._of.domain)}")
            connection.execute(f"CREATE TABLE {self.place} ({KEY} text PRIMARY KEY)")
        wanted = {field.name: column_type(field.type).name for field in schema}
        parts = [
            f"ALTER COLUMN {POSTGRES.name(name)} TYPE {kind} USING NULL"
            if name in types
            else f"ADD COLUMN {POSTGRES.name(name)} {kind}"
            for name, kind in wanted.items()
            if name != KEY and types.get(name) != kind
        ]
        if parts:
            connection.execute(f"ALTER TABLE {self.place} {', '.join(parts)}")
            self._gather_nothing(connection, wanted)
        for name in map(POSTGRES.name, (n for n in earlier if n in types and n not in wanted)):
            connection.execute(f"UPDATE {self.place} SET {name} = NULL WHERE {name} IS NOT NULL")

    def _gather_nothing(self, connection: Connection, columns: Collection[str]) -> None:
        """Keeps values of persons out of the statistics that the server gathers, which have some in the clear."""
        for name in map(POSTGRES.name, (column for column in self._reveal if column in columns)):
            connection.execute(f"ALTER TABLE {self.place} ALTER COLUMN {name} SET STATISTICS 0")

    def _change(self, connection: Connection, changes: pa.Table) -> list[Refused]:
        """Deletes and inserts the rows by their keys; returns those that PostgreSQL cannot hold, which are absent."""
        rows = changes.drop_columns([CHANGE])
        gone = pc.equal(changes[CHANGE], "delete")
        types = {field.name: column_type(field.type).name for field in rows.schema if field.name != KEY}
        columns = ", ".join(f"{POSTGRES.name(name)} {kind}" for name, kind in types.items())
        parts = [f"{KEY} text PRIMARY KEY", f"{CHANGE} boolean", *([columns] if columns else [])]
        connection.execute(f"CREATE TEMP TABLE {_CHANGES} ({', '.join(parts)}) ON COMMIT DROP")
        kept = as_texts(rows.filter(pc.invert(gone)))
        refused = list(_staged(connection, kept.append_column(CHANGE, pa.array(["false"] * len(kept), pa.string()))))
        keys = [*rows.filter(gone)[KEY].to_pylist(), *(row.key for row in refused)]
        # A key that the index cannot hold is refused once more, and is in no copy.
        list(_staged(connection, pa.table({KEY: keys, CHANGE: ["true"] * len(keys)})))
        names = POSTGRES.names(rows.column_names)
        connection.execute(f"DELETE FROM {self.place} c USING {_CHANGES} n WHERE c.{KEY} = n.{KEY}")
        connection.execute(f"INSERT INTO {self.place} ({names}) SELECT {names} FROM {_CHANGES} WHERE NOT {CHANGE}")
        return refused


def _staged(connection: Connection, texts: pa.Table) -> Iterator[Refused]:
    """Copies rows to the table of changes; yields those that PostgreSQL refuses, found by halving."""
    if not len(texts):
        return
    into = f"COPY {_CHANGES} ({POSTGRES.names(texts.column_names)}) FROM STDIN (FORMAT csv)"
    lines = io.BytesIO()
    csv.write_csv(texts, lines, csv.WriteOptions(include_header=False))
    try:
        with connection.transaction(), connection.cursor() as cursor, cursor.copy(into) as copy:
            copy.write(lines.getbuffer())
    except _REFUSALS as error:
        if len(texts) == 1:
            yield Refused(key=texts[KEY][0].as_py(), reason=error.diag.message_primary or str(error))
            return
        half = len(texts) // 2
        yield from _staged(connection, texts.slice(0, half))
        yield from _staged(connection, texts.slice(half))
