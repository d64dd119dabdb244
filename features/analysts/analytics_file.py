"""Writes `analytics.duckdb`, a file of views over all tables that any number of readers open, and replaces it whole."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.features.analysts.table_views import connect, create_bare_views, create_view
from twofold.infra import COMMAND
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings
from twofold.tables.declare.declaration_files import RESERVED_DOMAIN
from twofold.tables.declare.metadata_columns import OF_QUARANTINE
from twofold.tables.declare.table import Table
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from twofold.tables.declare.registry import Registry

_log = logging.getLogger("twofold.analytics")
NAME = "analytics"
CORRECTIONS = "ledger.corrections"
OWN = ("dictionary", "freshness")
"""Relations of the file that are no table's."""
_NO_STREAM = "of/no/stream.json"
"""A file below those of streams that says nothing: DuckDB refuses a pattern without a file, and views come first."""
_PROGRESS = "{domain: 'VARCHAR', query: 'VARCHAR', watermark: 'TIMESTAMPTZ', freshness_s: 'DOUBLE', error: 'VARCHAR'}"
_DICTIONARY = """"table" VARCHAR, "column" VARCHAR, "type" VARCHAR, description VARCHAR, made_of VARCHAR,
    table_description VARCHAR, owner VARCHAR"""
_FRESHNESS = "When each topic and table was last written, by which version, and how soon a record is a row."
_FINAL = "Rows of {} that its stream has closed."
_CORRECTED = "Rows of {}, with how often batch work has changed them since they were first written."
_PLAIN = frozenset(
    {"BIGINT", "BOOLEAN", "DATE", "DECIMAL", "INTEGER", "SMALLINT", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TINYINT"}
    | {"VARCHAR"}
)
"""Types whose values JSON holds as texts that DuckDB reads."""
_AT_VERSION = "at_version(name, version) AS TABLE FROM delta_scan({place}, version => version)"
_VERSIONS = (
    "versions(name) AS TABLE SELECT parse_filename(filename, true)::BIGINT AS version, "
    "make_timestamptz(commitInfo.timestamp * 1000) AS committed_at, commitInfo.operation AS operation, "
    "commitInfo.userMetadata AS info FROM read_json({place} || '/_delta_log/*.json', filename = true, columns = "
    "{{commitInfo: 'STRUCT(timestamp BIGINT, operation VARCHAR, userMetadata VARCHAR)'}}) WHERE commitInfo IS NOT NULL"
)
_VERSION_WITH = (
    "version_with(topic, partition_no, offset_no) AS (SELECT min(version) FROM versions(topic) "
    "WHERE (TRY_CAST(info AS JSON) -> 'ends' ->> partition_no::VARCHAR)::BIGINT > offset_no)"
)
"""A commit of ingest says in `ends` for each partition the first offset that is not in the table yet."""
_VERSION_AFTER = (
    "version_after(name, input, input_version) AS (SELECT min(version) FROM "
    "(SELECT version, TRY_CAST(info AS JSON) AS said FROM versions(name)) WHERE (said -> 'versions' ->> input)::BIGINT "
    "- coalesce(json_contains(said -> 'parts', to_json(input)), false)::INT > input_version)"
)
"""A commit of a stream says in `versions` which version of each input is read next, in `parts` that it is half read."""


def folders_of(settings: Settings) -> list[str]:
    """Lists the folders that the views read, and that of the rows which plans keep."""
    return [settings.lake_uri, str(settings.plans), str(settings.progress)]


def create_macros(connection: DuckDBPyConnection, lake_uri: str) -> None:
    """Defines the macros that `write_analytics` lists, for full names of tables."""
    place = f"{DUCKDB.literal(lake_uri + '/')} || replace(name, '.', '/')"
    for macro in (_AT_VERSION.format(place=place), _VERSIONS.format(place=place), _VERSION_WITH, _VERSION_AFTER):
        connection.execute(f"CREATE MACRO {macro}")


def attach(connection: DuckDBPyConnection, settings: Settings) -> None:
    """Attaches the file as `analytics`, if it is there and can be read; its own relations also get their bare names."""
    import duckdb

    with contextlib.suppress(duckdb.Error):
        connection.execute(f"ATTACH {DUCKDB.literal(str(settings.analytics))} AS {NAME} (READ_ONLY)")
        for name in OWN:
            connection.execute(f"CREATE VIEW {name} AS FROM {NAME}.{name}")


def open_analytics(settings: Settings | None = None) -> DuckDBPyConnection:
    """Opens the file to read it, with times in UTC; a notebook begins with it.

    Args:
        settings: None: those of the environment.

    Raises:
        BadArgument: it was not written yet.
    """
    settings = settings or Settings.from_environment()
    file = settings.analytics
    if not file.exists():
        raise BadArgument(f"There are no views for analysts at {file} yet.", hint=f"`{COMMAND} up` writes them.")
    return connect(file, read_only=True, memory_mb=settings.query_memory_mb)


def write_analytics(settings: Settings, registry: Registry) -> Path:
    """Writes a new file next to the one before, which it then replaces; readers of that one go on.

    Each Delta table has a view of its name with its newest rows and its descriptions as comments, and:

    - `TABLE_final`: of a table whose rows close, those that its stream has closed.
    - `TABLE_with_corrections`: its rows; `_corrections`: how often batch work has changed each since it was first
      written; `_corrected_at`, `_cause`: of the last time; `_before`: the row before the first, as JSON.
    - `dictionary`, a row for each column of each table; `freshness`, a row for each topic and table that is declared.
    - `at_version(table, version)`, `versions(table)`.
    - `version_with(topic, partition, offset)`: the first version of a topic's events, of those that the log still has,
      in which this offset was in; `version_after(table, input, version)`: the first version of a table whose stream had
      read its input up to this version, and perhaps more. Null: no commit says so yet.

    A declared table of such a name has it for itself. A table whose first commit is not finished has no view.

    Raises:
        MissingTool: the package with DuckDB's Delta reader is not installed.
    """
    file, lake = settings.analytics, Lake(settings)
    empty = settings.progress / _NO_STREAM
    empty.parent.mkdir(parents=True, exist_ok=True)
    empty.write_text("{}")
    draft = file.with_name(f"{file.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    try:
        with connect(draft) as connection:
            _Writing(connection, lake, registry).write()
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file


@dataclass(frozen=True)
class _Writing:
    connection: DuckDBPyConnection
    lake: Lake
    registry: Registry

    def write(self) -> None:
        names = [name for name in self.lake.names() if create_view(self.connection, self.lake, name)]
        self._describe(names)
        create_macros(self.connection, self.lake.settings.lake_uri)
        self._create_dictionary(names)
        self._create_freshness(names)
        for table in self.registry.tables.values():
            if table.full_name in names:
                self._create_readings(table, names)
        create_bare_views(self.connection, names, [name for name in names if name.split(".", 1)[1] not in OWN])

    def _describe(self, names: Sequence[str]) -> None:
        """Sets the descriptions of tables and of columns as comments of views."""
        for name in names:
            view = DUCKDB.name(*name.split(".", 1))
            text, columns = self._descriptions(name)
            if text:
                self.connection.execute(f"COMMENT ON VIEW {view} IS {DUCKDB.literal(text)}")
            for column in set(columns) & set(self._types(name)):
                of = f"{view}.{DUCKDB.name(column)}"
                self.connection.execute(f"COMMENT ON COLUMN {of} IS {DUCKDB.literal(columns[column])}")

    def _descriptions(self, name: str) -> tuple[str, Mapping[str, str]]:
        topic = name.removesuffix(QUARANTINE)
        if topic != name and topic in self.registry.topics:
            return f"Records of {topic} that were refused, with all reasons.", OF_QUARANTINE
        if name.split(".")[0] == RESERVED_DOMAIN:
            return self.lake.descriptions(name)
        declared = self.registry.tables.get(name) or self.registry.topics.get(name)
        return declared.description if declared else "", self.registry.descriptions.get(name, {})

    def _types(self, name: str) -> dict[str, str]:
        """Maps the columns of a table's view to their types."""
        query = "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = ? AND table_name = ?"
        return dict(self.connection.execute(query, name.split(".", 1)).fetchall())

    def _create_dictionary(self, names: Sequence[str]) -> None:
        """Creates the table `dictionary`, and a row for each column of the tables."""
        rows = []
        for name in names:
            text, columns = self._descriptions(name)
            table = self.registry.tables.get(name)
            made_of, owner = (table.lineage, table.owner) if table else ({}, None)
            rows += [
                (name, column, kind, columns.get(column), ", ".join(made_of.get(column, ())) or None, text, owner)
                for column, kind in self._types(name).items()
            ]
        self.connection.execute(f"CREATE TABLE dictionary ({_DICTIONARY})")
        self.connection.execute("COMMENT ON TABLE dictionary IS 'What each column of each table holds.'")
        if rows:
            self.connection.executemany(f"INSERT INTO dictionary VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def _create_freshness(self, names: Sequence[str]) -> None:
        """Creates the view `freshness`: what logs and streams say at the time of the query."""
        topics = [(topic.full_name, topic.domain, "ingest") for topic in self.registry.topics.values()]
        tables = [(table.full_name, table.domain, table.name) for table in self.registry.tables.values()]
        there = [row for row in (*topics, *tables) if row[0] in names]
        if not there:
            return
        logs = {name: f"{self.lake.uri(name)}/_delta_log" for name, *_ in there}
        rows = ", ".join(f"({DUCKDB.literals([*row, logs[row[0]]])})" for row in there)
        files = DUCKDB.literals(f"{log}/*.json" for log in logs.values())
        written = f"""SELECT parse_dirpath(filename) AS log, max(last_modified) AS written_at,
            max(try_cast(parse_filename(filename, true) AS BIGINT)) AS version FROM read_text([{files}]) GROUP BY ALL"""
        self.connection.execute(f"""CREATE VIEW freshness AS
            SELECT d.name AS "table", w.version, w.written_at, epoch(now() - w.written_at) AS age_s, p.freshness_s,
                p.watermark AS closed_before, nullif(p.error, '') AS error
            FROM (VALUES {rows}) AS d(name, domain, query, log) LEFT JOIN ({written}) AS w USING (log)
            LEFT JOIN {self._progress()} AS p ON p.domain = d.domain AND p.query = d.query ORDER BY d.name
            """)
        self.connection.execute(f"COMMENT ON VIEW freshness IS {DUCKDB.literal(_FRESHNESS)}")

    def _progress(self) -> str:
        """Returns the relation of what streams write about themselves."""
        files = DUCKDB.literal(f"{self.lake.settings.progress}/**/*.json")
        return f"read_json({files}, records = true, columns = {_PROGRESS})"

    def _create_readings(self, table: Table, names: Sequence[str]) -> None:
        """Creates the views of closed rows and of rows with their corrections, where the table has the columns."""
        own, types = DUCKDB.name(table.domain, table.name), self._types(table.full_name)
        if table.closes_at and (view := f"{table.full_name}_final") not in names:
            mark = (
                f"(SELECT max(watermark) FROM {self._progress()} AS p WHERE p.domain = {DUCKDB.literal(table.domain)} "
            )
            mark += f"AND p.query = {DUCKDB.literal(table.name)})"
            self._create(view, f"FROM {own} WHERE {DUCKDB.name(table.closes_at)} < {mark}", _FINAL.format(own))
        keys = {column: types.get(column, "") for column in table.primary_key}
        is_plain = all(kind.partition("(")[0] in _PLAIN for kind in keys.values())
        if CORRECTIONS in names and is_plain and (view := f"{table.full_name}_with_corrections") not in names:
            self._create(view, self._with_corrections(table, keys), _CORRECTED.format(own))

    def _create(self, full_name: str, query: str, comment: str) -> None:
        import duckdb

        view = DUCKDB.name(*full_name.split(".", 1))
        try:
            self.connection.execute(f"CREATE VIEW {view} AS {query}")
        except duckdb.BinderException as error:  # the table is of an older definition
            _log.warning("left out view=%s error=%s", full_name, error)
            return
        self.connection.execute(f"COMMENT ON VIEW {view} IS {DUCKDB.literal(comment)}")

    def _with_corrections(self, table: Table, keys: Mapping[str, str]) -> str:
        """Writes the query of a table's rows with their corrections, which the ledger keeps by the key as JSON."""
        read = [f"(key ->> {DUCKDB.literal(c)})::{kind} AS {DUCKDB.name(c)}" for c, kind in keys.items()]
        same = [f"{DUCKDB.name('t', column)} IS NOT DISTINCT FROM {DUCKDB.name('c', column)}" for column in keys]
        return f"""SELECT t.*, coalesce(c._corrections, 0) AS _corrections, c._corrected_at, c._cause, c._before
            FROM {DUCKDB.name(table.domain, table.name)} AS t LEFT JOIN (
                SELECT {", ".join(read)}, count(*) AS _corrections, max(recorded_at) AS _corrected_at,
                    arg_max(cause, version) AS _cause, arg_min("before", version) AS _before
                FROM {DUCKDB.name(*CORRECTIONS.split("."))} WHERE "table" = {DUCKDB.literal(table.full_name)}
                GROUP BY ALL
            ) AS c ON {" AND ".join(same)}"""
