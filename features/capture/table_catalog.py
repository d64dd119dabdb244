"""The tables of the captured database, as its catalog describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from psycopg import sql

from twofold.infra.postgres.database_connection import Connection, query
from twofold.infra.project.settings import Settings

_COLUMN = """jsonb_build_object(
    'name', a.attname,
    'number', a.attnum,
    'type', CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod)
                           ELSE format_type(a.atttypid, a.atttypmod) END,
    'kind', t.typtype,
    'not_null', a.attnotnull OR t.typnotnull,
    'is_virtual', a.attgenerated = 'v',
    'key', array_position(i.indkey::int2[], a.attnum))
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum"""
_TODAY = f"""
WITH RECURSIVE tree AS (
    SELECT to_regclass(%(table)s)::oid AS oid, '' AS since
    UNION ALL SELECT i.inhrelid, i.xmin::text FROM pg_inherits i JOIN tree t ON i.inhparent = t.oid
), parts AS (
    SELECT jsonb_object_agg(c.oid, jsonb_build_object(
        'name', c.oid::regclass,
        'since', t.since,
        'is_new', EXISTS (
            SELECT FROM pg_attribute a JOIN pg_attribute made ON made.attrelid = a.attrelid AND made.attnum = -1
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.xmin = made.xmin AND a.cmin = made.cmin),
        'file', c.relfilenode::bigint,
        'inserted', CASE WHEN pg_relation_size(c.oid) = 0 THEN pg_stat_get_tuples_inserted(c.oid) END,
        'is_logged', c.relkind IN ('r', 'p') AND c.relpersistence = 'p',
        'identity', CASE WHEN c.relreplident = 'i' AND EXISTS (
            SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident AND i.indisprimary)
            THEN 'd' ELSE c.relreplident END)) AS parts
    FROM tree t JOIN pg_class c ON c.oid = t.oid
)
SELECT jsonb_build_object(
    'oid', c.oid::bigint,
    'is_partitioned', c.relkind = 'p',
    'named', (SELECT t.xmin::text FROM pg_type t WHERE t.oid = c.reltype),
    'published', p.xmin || ' ' || r.xmin,
    'system', (SELECT system_identifier::text FROM pg_control_system()),
    'timeline', (SELECT timeline_id FROM pg_control_checkpoint()),
    'day', current_date,
    'transaction', pg_snapshot_xmin(pg_current_snapshot())::xid::text,
    'is_deferrable', EXISTS (
        SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND NOT i.indimmediate),
    'parts', parts.parts,
    'columns', ARRAY(SELECT {_COLUMN})) AS today,
    obj_description(p.oid, 'pg_publication')::jsonb AS noted
FROM pg_class c
CROSS JOIN parts
LEFT JOIN pg_publication p ON p.pubname = %(publication)s
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
WHERE c.oid = to_regclass(%(table)s)
"""


@dataclass(frozen=True, kw_only=True)
class CatalogColumn:
    """A column of a table.

    Attributes:
        type: as PostgreSQL writes it, `numeric(20,4)`; for a domain its base type.
        kind: as `pg_type.typtype`: `b` base, `d` domain, `e` enum, `r` and `m` ranges, `c` composite.
        is_virtual: computed on read, so that change events do not have it.
        key: its place in the primary key, from 0; None: it is not in it.
        number: unique among all columns that the table ever had.
    """

    name: str
    type: str
    kind: str
    not_null: bool
    is_virtual: bool
    key: int | None
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class TablePart:
    """A table that holds rows: the captured one itself, or a partition of it, at any depth.

    Attributes:
        since: the transaction that attached it; empty of the captured table itself.
        is_new: it was created as a partition, and has been none of another table.
        file: the file node of its rows; each rewrite changes it.
        inserted: the count of rows ever inserted into it, if it is empty; None: it is not empty.
        is_logged: its changes are in the database's log.
        identity: the old values in a change, as `pg_class.relreplident`; `d`: the primary key.
    """

    name: str
    since: str
    is_new: bool
    file: int
    inserted: int | None
    is_logged: bool
    identity: str


@dataclass(frozen=True, kw_only=True)
class CatalogTable:
    """A captured table, as the catalog describes it.

    Attributes:
        named: the transaction that gave it its name, its schema or its owner.
        published: the transactions that made the publication as it is, and put the table into it; None: it is not.
        system: the identifier of the database cluster.
        timeline: of the cluster; another one after a restore, and after a standby server was promoted.
        day: when this was asked.
        transaction: every earlier transaction had ended by then.
        is_deferrable: two rows may have one primary key within a transaction.
        parts: by OID, the table itself included.
    """

    oid: int
    is_partitioned: bool
    named: str
    published: str | None
    system: str
    timeline: int
    day: str
    transaction: str
    is_deferrable: bool
    parts: Mapping[str, TablePart]
    columns: Sequence[CatalogColumn]

    @property
    def key(self) -> list[str]:
        """The columns of the primary key, in its order."""
        return [column.name for column in sorted(self.columns, key=lambda c: c.key or 0) if column.key is not None]


def missing_tables(settings: Settings, tables: Sequence[str]) -> list[str]:
    """Lists those of the tables, as `schema.name`, that the database does not have.

    Raises:
        DatabaseUnreachable: retryable.
    """
    if not tables:
        return []
    named = "SELECT name FROM unnest(%s::text[]) WITH ORDINALITY t(name, n)"
    return [name for (name,) in query(settings, f"{named} WHERE to_regclass(name) IS NULL ORDER BY n", [list(tables)])]


def columns_of(settings: Settings, table: str) -> list[CatalogColumn]:
    """Lists the columns of a table in its order; empty if the database has no such table.

    Raises:
        DatabaseUnreachable: retryable.
    """
    return [CatalogColumn(**column) for (column,) in query(settings, f"SELECT {_COLUMN}", {"table": table})]


def table_today(settings: Settings, table: str, publication: str) -> tuple[CatalogTable, CatalogTable | None] | None:
    """Reads a table's catalog entry and the one noted on its publication; None if there is no such table.

    Raises:
        DatabaseUnreachable: retryable.
    """
    rows = query(settings, _TODAY, {"table": table, "publication": publication})
    return next(((_parsed(today), _parsed(noted) if noted else None) for today, noted in rows), None)


def note_table(connection: Connection, table: str, publication: str) -> None:
    """Saves the table's current catalog entry as a note on a publication."""
    [(today, _)] = connection.execute(_TODAY, {"table": table, "publication": publication})
    connection.execute(_note(publication, today))


def note_again(settings: Settings, publication: str, table: CatalogTable) -> None:
    """Replaces the note on a publication by this catalog entry."""
    query(settings, _note(publication, asdict(table)))


def has_rows_from_before(settings: Settings, oid: str, transaction: str) -> bool:
    """Whether a table still has a row older than a transaction, as after a VACUUM moved its rows.

    Raises:
        DatabaseUnreachable: retryable.
    """
    [(name,)] = query(settings, "SELECT %s::regclass::text", [oid])
    older = sql.SQL("SELECT EXISTS (SELECT FROM ONLY {} WHERE age(xmin) > age({}::xid))")
    [(is_there,)] = query(settings, older.format(sql.SQL(name), transaction))
    return bool(is_there)


def _note(publication: str, document: Mapping[str, Any]) -> sql.Composed:
    statement = sql.SQL("COMMENT ON PUBLICATION {} IS {}")
    return statement.format(sql.Identifier(publication), json.dumps(document))


def _parsed(document: dict[str, Any]) -> CatalogTable:
    parts = {oid: TablePart(**part) for oid, part in document.pop("parts").items()}
    return CatalogTable(
        parts=parts, columns=[CatalogColumn(**column) for column in document.pop("columns")], **document
    )
