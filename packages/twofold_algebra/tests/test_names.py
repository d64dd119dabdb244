"""Each engine reads the names and the constants that are written for it as what they were."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from deltalake import QueryBuilder
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from twofold_algebra.sql.names import DATAFUSION, DUCKDB, POSTGRES, SPARK, Constant, Dialect

ODD = st.text(st.sampled_from("'\"`\\{}[]$%?:;-/*\n\r\t é😀ab0"), max_size=12)
TEXTS = ODD | st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12)
NAMES = TEXTS.filter(bool)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**20), max_value=10**20)
CONSTANTS = (
    TEXTS
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | DECIMALS
    | st.dates()
    | st.datetimes(timezones=st.just(UTC) | st.none())
    | st.binary(max_size=12)
    | st.none()
)
DATABASE = duckdb.connect()
DATABASE.execute("SET TimeZone = 'UTC'")


def by_duckdb(sql: str) -> pa.Table:
    return DATABASE.execute(sql).to_arrow_table()


def by_datafusion(sql: str) -> pa.Table:
    return pa.table(QueryBuilder().execute(sql))


ENGINES = pytest.mark.parametrize(
    ("dialect", "run"), [(DUCKDB, by_duckdb), (DATAFUSION, by_datafusion)], ids=["DuckDB", "DataFusion"]
)


def same(value: object, other: object) -> bool:
    """Whether both are one value of one type, of its sign, too."""
    if isinstance(value, float) and isinstance(other, float):
        is_nan = math.isnan(value) and math.isnan(other)
        return is_nan or (value == other and math.copysign(1, value) == math.copysign(1, other))
    return value == other and isinstance(value, bool) == isinstance(other, bool)


@ENGINES
@given(value=CONSTANTS)
def test_a_constant_is_read_as_what_it_was(dialect: Dialect, run: type[pa.Table], value: Constant) -> None:
    [read] = run(f"SELECT {dialect.literal(value)} AS x")["x"].to_pylist()
    assert same(read, value)


@ENGINES
@given(name=NAMES, value=TEXTS)
def test_a_name_is_read_as_what_it_was(dialect: Dialect, run: type[pa.Table], name: str, value: str) -> None:
    column = dialect.name(name)
    rows = run(f"SELECT {dialect.name('t', name)} FROM (SELECT {dialect.literal(value)} AS {column}) AS t")
    assert rows.to_pydict() == {name: [value]}


@pytest.mark.parametrize("dialect", [SPARK, DUCKDB])
@given(path=st.lists(NAMES, min_size=1, max_size=3))
def test_a_path_is_read_as_what_it_was(dialect: Dialect, path: list[str]) -> None:
    assert dialect.path(dialect.name(*path)) == path
    assert dialect.path(f"plain.{dialect.name(*path)}") == ["plain", *path]


@ENGINES
def test_a_field_of_a_struct_is_a_path(dialect: Dialect, run: type[pa.Table]) -> None:
    rows = run(f"SELECT s AS n FROM (SELECT 1 AS s) AS {dialect.name('a.b')} WHERE {dialect.name('a.b', 's')} = 1")
    assert rows.to_pydict() == {"n": [1]}


@given(value=TEXTS)
def test_spark_reads_a_text_whose_backslashes_are_doubled(value: str) -> None:
    written = SPARK.literal(value)
    assert (written[0], written[-1]) == ("'", "'")
    assert unescaped(written[1:-1]) == value


def unescaped(text: str) -> str:
    """The text, by what Spark does to a backslash; a quote that none precedes would end it."""
    read, signs = "", iter(text)
    for sign in signs:
        assert sign != "'"
        read += next(signs) if sign == "\\" else sign
    return read


@pytest.mark.parametrize(
    ("value", "in_spark", "in_postgres"),
    [
        ("it's \\", "'it\\'s \\\\'", "'it''s \\'"),
        (None, "NULL", "NULL"),
        (True, "true", "true"),
        (-(2**63), "-9223372036854775808", "-9223372036854775808"),
        (2**63, "CAST('9223372036854775808' AS DECIMAL(19, 0))", "CAST('9223372036854775808' AS DECIMAL(19, 0))"),
        (math.nan, "CAST('nan' AS DOUBLE)", "CAST('nan' AS DOUBLE PRECISION)"),
        (Decimal("-0.050"), "CAST('-0.050' AS DECIMAL(3, 3))", "CAST('-0.050' AS DECIMAL(3, 3))"),
        (date(1, 1, 1), "DATE '0001-01-01'", "DATE '0001-01-01'"),
        (
            datetime(2013, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            "timestamp_micros(1356998400000000)",
            "(TIMESTAMPTZ 'epoch' + 1356998400000000 * INTERVAL '1 microsecond')",
        ),
        (b"\x00'", "X'0027'", "decode('0027', 'hex')"),
    ],
)
def test_spark_and_postgresql_write_constants_so(value: Constant, in_spark: str, in_postgres: str) -> None:
    assert (SPARK.literal(value), POSTGRES.literal(value)) == (in_spark, in_postgres)


@ENGINES
@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize("year", [1, 1500, 1969, 2013, 9999])
def test_a_moment_is_read_in_the_type_of_a_column(
    dialect: Dialect, run: type[pa.Table], kind: pa.DataType, year: int
) -> None:
    day = date(year, 3, 1)
    ms = (day.toordinal() - date(1970, 1, 1).toordinal()) * 86_400_000
    read = run(f"SELECT {dialect.moment(kind, ms)} AS x")["x"]
    assert read.type == kind
    assert read.cast(pa.timestamp("us")).to_pylist() == [datetime(year, 3, 1)]


@given(name=NAMES.filter(str.isprintable))
def test_another_parser_of_sparks_sql_reads_the_name(name: str) -> None:
    assert sqlglot.parse_one(SPARK.name("t", name), read="spark") == exp.column(
        exp.to_identifier(name, quoted=True), exp.to_identifier("t", quoted=True)
    )
