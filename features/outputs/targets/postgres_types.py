"""The types of Delta columns in PostgreSQL, and how values get there and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as is_type

from twofold.features.outputs.json_rows import read_back
from twofold.infra.duckdb_session import query
from twofold.tables.refresh.json_values import to_plain_json
from twofold_algebra.sql.names import DUCKDB, POSTGRES

_ERA = r"regexp_replace({0}::VARCHAR, '^(\S+) \(BC\)(.*)$', '\1\2 BC')"
"""DuckDB writes the era behind the date, PostgreSQL reads it at the end."""
_FINITE = "CASE WHEN isfinite({{0}}) THEN {0} WHEN {{0}} IS NOT NULL THEN {1} END"
_MICROS = _FINITE.format("(extract(epoch FROM {0}) * 1000000)::bigint", -(2**63) + 1)
_DAYS = _FINITE.format("{0} - date '1970-01-01'", -(2**31))
_UNREADABLE = "\0"
"""PostgreSQL refuses a row with it."""


class ColumnType(NamedTuple):
    """A type of PostgreSQL.

    Attributes:
        name: the type.
        written: a value as a text that PostgreSQL reads, in DuckDB's SQL.
        read: a value as psycopg gets it, in PostgreSQL's SQL.
        stored: the Arrow type of such values; None: that of the column.
    """

    name: str
    written: str = "{0}::VARCHAR"
    read: str = "{0}"
    stored: pa.DataType | None = None


_PLAIN = {
    pa.bool_(): ColumnType("boolean"),
    pa.int8(): ColumnType("smallint"),
    pa.int16(): ColumnType("smallint"),
    pa.int32(): ColumnType("integer"),
    pa.int64(): ColumnType("bigint"),
    pa.float32(): ColumnType("real"),
    pa.float64(): ColumnType("double precision"),
    pa.string(): ColumnType("text"),
    pa.binary(): ColumnType("bytea", r"'\x' || hex({0})"),
    pa.date32(): ColumnType("date", _ERA, _DAYS, pa.int32()),
}
_JSON = ColumnType("jsonb")


def column_type(kind: pa.DataType) -> ColumnType:
    """Returns the type of PostgreSQL that has all values of an Arrow type, except years beyond its own."""
    if is_type.is_decimal(kind):
        return ColumnType(f"numeric({kind.precision},{kind.scale})")
    if is_type.is_timestamp(kind):
        name = "timestamp with time zone" if kind.tz else "timestamp without time zone"
        return ColumnType(name, _ERA, _MICROS, pa.int64())
    return _PLAIN.get(kind, _JSON)


def as_texts(rows: pa.Table) -> pa.Table:
    """Writes each value of the rows as PostgreSQL reads it."""
    for number, field in enumerate(rows.schema):
        if column_type(field.type) is _JSON:
            rows = rows.set_column(number, field.name, pa.array(map(_json_text, rows[field.name]), pa.string()))
    columns = [
        f"{column_type(f.type).written.format(DUCKDB.name(f.name))} AS {DUCKDB.name(f.name)}" for f in rows.schema
    ]
    return query(f"SELECT {', '.join(columns)} FROM rows", rows=rows)


def _json_text(value: pa.Scalar) -> str | None:
    try:
        return json.dumps(to_plain_json(value.as_py())) if value.is_valid else None
    except (ValueError, OverflowError):  # a year that Python does not have
        return _UNREADABLE


def as_read(field: pa.Field) -> str:
    """Writes a column as it is read, in PostgreSQL's SQL."""
    return column_type(field.type).read.format(POSTGRES.name(field.name))


def as_rows(schema: pa.Schema, found: Sequence[Sequence[Any]]) -> pa.Table:
    """Converts rows that PostgreSQL gave, the key first; see `read_back` for JSON that cannot be read."""
    kinds = [field.type if column_type(field.type) is _JSON else None for field in schema]
    rows = [read_back(row, kinds) for row in found]
    columns = [
        pa.array([row[n] for row in rows], column_type(f.type).stored or f.type).cast(f.type)
        for n, f in enumerate(schema)
    ]
    return pa.table(columns, schema=schema)
