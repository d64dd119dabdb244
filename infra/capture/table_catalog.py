"""What the captured database's catalog says of its tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from infra.capture import postgres_server
from infra.settings import Settings

_QUOTED = "'{}'"
_COLUMNS = """
SELECT json_build_object(
    'name', a.attname,
    'type', CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod)
                           ELSE format_type(a.atttypid, a.atttypmod) END,
    'kind', t.typtype,
    'not_null', a.attnotnull OR t.typnotnull,
    'is_virtual', a.attgenerated = 'v',
    'key', array_position(i.indkey::int2[], a.attnum))
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass('{}') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


@dataclass(frozen=True, kw_only=True)
class CatalogColumn:
    """A column of a table.

    Attributes:
        type: as PostgreSQL writes it, `numeric(20,4)`; of a domain the type that it is made of.
        kind: as `pg_type.typtype`: `b` base, `d` domain, `e` enum, `r` and `m` ranges, `c` composite.
        is_virtual: it is computed when it is read, so that its values are in no change.
        key: its place in the primary key, from 0; None: it is not in it.
    """

    name: str
    type: str
    kind: str
    not_null: bool
    is_virtual: bool
    key: int | None


def missing_tables(settings: Settings, tables: Sequence[str]) -> list[str]:
    """Those of these tables, as `schema.name`, that the database does not have.

    Raises:
        DatabaseUnreachable: retryable.
    """
    if not tables:
        return []
    names = ", ".join(map(_QUOTED.format, tables))
    return postgres_server.query(
        settings, f"SELECT name FROM unnest(ARRAY[{names}]) WITH ORDINALITY t(name, n) "
        "WHERE to_regclass(name) IS NULL ORDER BY n"
    )  # fmt: skip


def columns_of(settings: Settings, table: str) -> list[CatalogColumn]:
    """The columns of a table, in its order; none where the database has no such table.

    Raises:
        DatabaseUnreachable: retryable.
    """
    lines = postgres_server.query(settings, _COLUMNS.format(table))
    return [CatalogColumn(**json.loads(line)) for line in lines]
