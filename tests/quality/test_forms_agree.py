"""Spark, Arrow and an independent judge find the same rows bad, whatever the values."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.quality.rule_cases import numbered, reasons
from twofold.quality.record_checks import broken
from twofold.quality.row_checks import measure
from twofold.quality.rules import (
    RECORD_RULES,
    ROW_RULES,
    Between,
    Expression,
    FreshWithin,
    Matches,
    NotNull,
    OneOf,
    Rule,
    Unique,
    between,
    expression,
    fresh_within,
    matches,
    not_null,
    one_of,
    unique,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Record = dict[str, Any]
NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
DAYS = st.dates(dt.date(2012, 12, 30), dt.date(2013, 1, 3)) | st.sampled_from([dt.date(1, 1, 1), dt.date(1582, 10, 5)])
INSTANTS = st.datetimes(dt.datetime(2012, 12, 31), dt.datetime(2013, 1, 2)) | st.just(dt.datetime(1, 1, 1))
REALS = st.floats(width=32) | st.sampled_from([0.0, -0.0, 0.5, -1.5, 1e300, math.nan, math.inf])
SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "small": pa.int16(),
        "x": pa.float64(),
        "f": pa.float32(),
        "price": pa.decimal128(9, 2),
        "day": pa.date32(),
        "seen": pa.timestamp("us", tz="UTC"),
        "there": pa.timestamp("us", tz="America/New_York"),
        "local": pa.timestamp("us"),
        "k": pa.string(),
        "b": pa.bool_(),
        "parts": pa.list_(pa.int32()),
        "place": pa.struct({"lat": pa.float64()}),
    }
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-3, 3) | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1]),
    "small": st.integers(-3, 3),
    "x": REALS,
    "f": REALS.filter(lambda value: abs(value) < 1e38 or not math.isfinite(value)),
    "price": st.decimals(-3, 3, places=2) | st.sampled_from([Decimal("0.10"), Decimal("9999999.99")]),
    "day": DAYS,
    "seen": INSTANTS,
    "there": st.datetimes(dt.datetime(2012, 12, 31), dt.datetime(2013, 1, 2)).map(lambda at: at.replace(tzinfo=dt.UTC)),
    "local": INSTANTS,
    "k": st.text(st.sampled_from("aAé😀\n .\u2028"), max_size=4),
    "b": st.booleans(),
    "parts": st.lists(st.none() | st.integers(0, 1), max_size=2),
    "place": st.fixed_dictionaries({"lat": st.none() | REALS}),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), min_size=5, max_size=30
)

WHOLE = st.integers(-3, 3)
NUMBERS = WHOLE | st.sampled_from([0.5, -1.5, 0.1, 0.0, -0.0])
DATES = st.sampled_from(["2012-12-31", "2013-01-01", "2013-01-02", "1582-10-05"])
TIMES = st.sampled_from(["2013-01-01T00:00:00Z", "2013-01-01T12:00:00+02:00", "1582-10-05T00:00:00Z"])


def betweens(bounds: st.SearchStrategy[Any], *columns: str) -> st.SearchStrategy[Rule]:
    pairs = st.tuples(st.none() | bounds, st.none() | bounds).filter(lambda pair: pair != (None, None))
    ordered = pairs.map(lambda pair: pair if None in pair else tuple(sorted(pair)))
    return st.tuples(st.sampled_from(columns), ordered).map(lambda drawn: between(drawn[0], *drawn[1]))


def lists(values: st.SearchStrategy[Any], *columns: str) -> st.SearchStrategy[Rule]:
    return st.builds(one_of, st.sampled_from(columns), st.lists(values, min_size=1, max_size=12))


KINDS: dict[type[Rule], st.SearchStrategy[Rule]] = {
    NotNull: st.builds(not_null, st.sampled_from(SCHEMA.names)),
    Between: betweens(NUMBERS, "n", "small", "x", "f", "price")
    | betweens(WHOLE | st.just(2**53 + 1), "n", "small", "x", "f", "price")
    | betweens(DATES, "day", "seen", "there", "local")
    | betweens(TIMES, "seen", "there", "local"),
    OneOf: lists(NUMBERS, "n", "small", "x", "f", "price")
    | lists(WHOLE | st.just(2**53 + 1), "n", "small", "x", "f", "price")
    | lists(st.sampled_from(["", "a", "é", "a\n"]), "k")
    | lists(st.booleans(), "b"),
    Matches: st.builds(matches, st.just("k"), st.sampled_from([r".[aé.]*", r"(?:[^a]|\.)?\w?", r"\W+", r"A|a\.?"])),
    Unique: st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=2, unique=True).map(lambda c: unique(*c)),
    FreshWithin: st.builds(
        fresh_within,
        st.sampled_from(["day", "seen", "there", "local"]),
        st.sampled_from(["1 hour", "2 days", "300000 days"]),
    ),
    Expression: st.sampled_from(
        ["x < 0.5 OR n > 0", "NOT b", "x = 0 AND price >= 0.1", "length(k) > 1", "seen >= '2013-01-01 00:00:00Z'"]
    ).map(expression),
}


def test_every_kind_of_rule_is_drawn() -> None:
    assert set(KINDS) == set(Rule.__subclasses__())


# To shrink an example takes a query for each try.
@settings(max_examples=4, suppress_health_check=list(HealthCheck), phases=[Phase.generate], print_blob=True)
@given(rows=ROWS, rules=st.tuples(*(st.lists(kind, min_size=1, max_size=2) for kind in KINDS.values())))
def test_arrow_spark_and_an_independent_judge_agree(
    spark: SparkSession, rows: list[Record], rules: tuple[list[Rule], ...]
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    judged = list(dict.fromkeys(rule for kind in rules for rule in kind))
    expected = {rule: failing_rows(rule, table) for rule in judged}
    note(f"expected {expected}")

    on_records = [rule for rule in judged if rule.kind in RECORD_RULES]
    assert [found or [] for found in broken(table, on_records).to_pylist()] == texts(expected, on_records, len(rows))
    on_rows = tuple(rule for rule in judged if rule.kind in ROW_RULES)
    df = numbered(spark, table)
    assert reasons(df, on_rows, len(rows)) == texts(expected, on_rows, len(rows))
    assert {one.rule: one.failing for one in measure(df, judged, NOON).rules} == {
        rule: len(failing) for rule, failing in expected.items()
    }


def texts(expected: dict[Rule, set[int]], rules: Any, rows: int) -> list[list[str]]:
    return [[str(rule) for rule in rules if row in expected[rule]] for row in range(rows)]


def failing_rows(rule: Rule, table: pa.Table) -> set[int]:
    """The rows that break a rule, by plain Python; for an expression by DuckDB."""
    if isinstance(rule, Expression):
        numbered = table.append_column("row", pa.array(range(len(table)), pa.int32()))  # noqa: F841 - DuckDB reads it
        with duckdb.connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            return {row for (row,) in db.execute(f"SELECT row FROM numbered WHERE NOT ({rule.sql})").fetchall()}
    values = [tuple(map(plain, row)) for row in zip(*(table[name].to_pylist() for name in rule.columns), strict=True)]
    if isinstance(rule, Unique):
        counted = Counter(map(repr, values))
        return {number for number, row in enumerate(values) if None not in row and counted[repr(row)] > 1}
    given = {number: value for number, (value,) in enumerate(values) if value is not None}
    if isinstance(rule, NotNull):
        return set(range(len(values))) - set(given)
    if isinstance(rule, FreshWithin):
        is_old = bool(given) and max(given.values()) < NOON - rule.age
        return set(given) if is_old else set()
    return {number for number, value in given.items() if not keeps(rule, value)}


def keeps(rule: Rule, value: Any) -> bool:
    match rule:
        case Between(low=low, high=high):
            return not (value != value or (low is not None and value < plain(low))) and (
                high is None or value <= plain(high)
            )
        case OneOf(values=allowed):
            return any(value == other for other in allowed)
        case Matches(regex=regex):
            return bool(re.fullmatch(regex, value, re.ASCII))
    raise TypeError(rule)


def plain(value: Any) -> Any:
    """A value that compares as the rules say: instants in UTC, decimals as the doubles that people write, one zero."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=value.tzinfo or dt.UTC).astimezone(dt.UTC)
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    if isinstance(value, Decimal | float):
        return float(value) + 0.0
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return value
