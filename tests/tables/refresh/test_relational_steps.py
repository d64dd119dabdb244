"""Each relational step gives the same rows by DuckDB and by Spark, whatever the rows are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.infra.rows.rows import dialect_of, here, run_sql
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.refresh.derived_rows import first_of_each
from twofold.tables.refresh.row_diff import difference, matching, of_kinds, rows_after, rows_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.rows.rows import Rows

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ('odd "name" {x} `y`', pa.decimal128(20, 2)),
        ("x", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("lat", pa.float64()), ("names", pa.list_(pa.int64()))])),
        ("ages", pa.map_(pa.string(), pa.int64())),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
    ]
)
KEY = ["key", 'odd "name" {x} `y`']
MOMENT = datetime(2013, 3, 31, 1, 59, 59, 999_999)
DOUBLES = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 1e300, None]


def rows_of(chosen: Any) -> pa.Table:
    """Rows whose keys are few, so that those of two tables meet; unique by the key."""
    found: dict[Any, Mapping[str, Any]] = {}
    for number, (key, price, x, hours, tags, place, ages) in enumerate(chosen):
        at = None if hours is None else MOMENT + timedelta(hours=hours)
        values = [
            *(key, price, x, at and at.replace(tzinfo=UTC), at, at and date(2013, 3, 31), tags and tags[0].encode()),
            *(tags, place, ages and sorted(ages.items()), number % 2, number),
        ]
        found.setdefault((key, price), dict(zip(SCHEMA.names, values, strict=True)))
    return pa.Table.from_pylist(list(found.values()), schema=SCHEMA)


TABLES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "ä", "", None]),
        st.sampled_from([Decimal("1.50"), Decimal("123456789012345678.25"), Decimal("-0.01"), None]),
        st.sampled_from(DOUBLES),
        st.sampled_from([0, 1, -5, None]),
        st.sampled_from([["x"], ["x", "y"], [], None]).filter(lambda tags: tags != []),
        st.sampled_from([{"lat": 1.0, "names": [1, 2]}, {"lat": None, "names": None}, None]),
        st.sampled_from([{"a": 1}, {"b": 2, "a": 1}, {}, None]),
    ),
    max_size=8,
).map(rows_of)

STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "difference": lambda one, other: difference(one, other, KEY),
    "approximate": lambda one, other: difference(one, other, KEY, approximate={}),
    "compared": lambda one, other: difference(one, other, KEY, ["x", "tags"]),
    "semi": lambda one, other: matching(one, other, KEY, "SEMI"),
    "anti": lambda one, other: matching(one, other, KEY, "ANTI"),
    "updates": lambda one, other: of_kinds(difference(one, other, KEY), ["update", "delete"]),
    "before": lambda one, other: rows_before(difference(one, other, KEY)),
    "after": lambda one, other: rows_after(difference(one, other, KEY)),
    "first": lambda one, _: first_of_each(one, ["key", "x"]),
}


def sorted_rows(rows: Rows) -> list[str]:
    """Rows as texts: -0.0 as 0.0, entries of maps by key; Spark gives instants in UTC, as Arrow has them."""
    return sorted(str({name: _plain(value) for name, value in row.items()}) for row in here(rows).to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(value)
    return value


@pytest.mark.parametrize("step", STEPS)
def test_both_engines_give_the_same_rows(spark: SparkSession, step: str) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
    @given(TABLES, TABLES)
    def same(one: pa.Table, other: pa.Table) -> None:
        do = STEPS[step]
        schema = from_arrow_schema(SCHEMA, prefer_timestamp_ntz=True)
        by_spark = do(spark.createDataFrame(one, schema), spark.createDataFrame(other, schema))
        assert sorted_rows(do(one, other)) == sorted_rows(by_spark)

    same()


def test_rows_of_both_places_are_joined_by_spark(spark: SparkSession) -> None:
    one = rows_of([("a", None, 1.0, 0, None, None, None), ("b", None, 2.0, 0, None, None, None)])
    joined = matching(spark.createDataFrame(one), one.slice(0, 1), KEY, "SEMI")
    assert here(joined)["key"].to_pylist() == ["a"]


@pytest.mark.parametrize("is_here", [True, False])
def test_a_name_of_a_column_is_never_read_as_sql(spark: SparkSession, is_here: bool) -> None:
    odd = 'x", (SELECT 1) AS "y {rows} `z'
    rows = pa.table({odd: [1, 2]})
    frame = rows if is_here else spark.createDataFrame(rows)
    name = dialect_of(frame).name(odd)
    assert here(run_sql(f"SELECT {name} FROM rows WHERE {name} = 2", rows=frame)).to_pydict() == {odd: [2]}
