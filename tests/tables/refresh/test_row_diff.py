"""The difference of two tables, worked out by hand; that Spark finds the same: `test_relational_steps.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from twofold.infra.delta.delta_writer import BEFORE, CHANGE
from twofold.infra.rows.rows import here
from twofold.tables.refresh.row_diff import difference

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
NAN = float("nan")
Compare = Callable[..., list[dict[str, Any]]]
Row = tuple[Any, ...]
Case = tuple[float | None, float | None, bool]
"""What should be, what is, and whether that is a difference."""


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Compare:
    """The difference as rows, sorted, in memory unless a test says `by_both`."""
    spark = request.getfixturevalue("spark") if getattr(request, "param", "memory") == "spark" else None

    def rows(
        should: pa.Table,
        live: pa.Table,
        key: Sequence[str] = ("k",),
        compared: Sequence[str] | None = None,
        approximate: Mapping[str, float] | None = None,
    ) -> list[dict[str, Any]]:
        sides = (should, live) if spark is None else (spark.createDataFrame(should), spark.createDataFrame(live))
        return sorted(here(difference(*sides, key, compared, approximate)).to_pylist(), key=repr)

    return rows


by_both = pytest.mark.parametrize("compare", ["memory", pytest.param("spark", marks=pytest.mark.spark)], indirect=True)


def table(*cells: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in cells], schema=schema)


def differing(compare: Compare, cases: Sequence[Case], approximate: Mapping[str, float] | None) -> list[Case]:
    """The cases that differ, all compared at once, each under a key of its own."""
    sides = [table(*((str(n), 1, case[side]) for n, case in enumerate(cases))) for side in (0, 1)]
    found = {row["k"] for row in compare(*sides, approximate=approximate)}
    return [case for n, case in enumerate(cases) if str(n) in found]


def expected(cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if case[2]]


@by_both
def test_missing_extra_and_changed_rows_are_reported(compare: Compare) -> None:
    should = table(("missing", 1, 1.0), ("changed", 2, 2.0), ("same", 3, None))
    live = table(("same", 3, None), ("changed", 9, None), ("extra", 4, 4.0))
    assert compare(should, live) == [
        {"k": "changed", "n": 2, "x": 2.0, CHANGE: "update", BEFORE + "n": 9, BEFORE + "x": None},
        {"k": "extra", "n": 4, "x": 4.0, CHANGE: "delete", BEFORE + "n": 4, BEFORE + "x": 4.0},
        {"k": "missing", "n": 1, "x": 1.0, CHANGE: "insert", BEFORE + "n": None, BEFORE + "x": None},
    ]


@by_both
def test_values_differ_as_sql_distinguishes_them(compare: Compare) -> None:
    cases: list[Case] = [
        (None, None, False),
        (None, 0.0, True),
        (0.0, None, True),
        (NAN, NAN, False),
        (NAN, None, True),
        (NAN, 1.0, True),
        (0.0, -0.0, False),
        (float("inf"), float("-inf"), True),
        (0.1 + 0.2, 0.3, True),
    ]
    assert differing(compare, cases, None) == expected(cases)


def test_a_null_key_meets_a_null_key(compare: Compare) -> None:
    assert compare(table((None, 1, None)), table((None, 1, None))) == []
    (row,) = compare(table((None, 1, None)), table((None, 2, None)))
    assert (row[CHANGE], row["k"], row["n"]) == ("update", None, 1)


def test_a_key_of_several_columns_must_agree_in_all(compare: Compare) -> None:
    changes = compare(table(("a", 1, 1.0), ("a", 2, 2.0)), table(("a", 1, 1.0), ("a", None, 2.0)), ["k", "n"])
    assert sorted((row[CHANGE], row["n"] or 0) for row in changes) == [("delete", 0), ("insert", 2)]


def test_only_the_compared_columns_make_a_row_changed(compare: Compare) -> None:
    should, live = table(("a", 1, 5.0), ("b", 1, 5.0)), table(("a", 1, 6.0), ("b", 2, 6.0))
    (row,) = compare(should, live, ("k",), ["n"])
    assert row == {"k": "b", "n": 1, "x": 5.0, CHANGE: "update", BEFORE + "n": 2, BEFORE + "x": 6.0}


@by_both
def test_columns_go_by_name_and_take_the_types_of_the_live_table(compare: Compare) -> None:
    narrow = pa.schema([("x", pa.float64()), ("n", pa.int32()), ("k", pa.string())])
    assert compare(table((1.0, 1, "a"), schema=narrow), table(("a", 1, 1.0))) == []


@by_both
def test_a_table_of_keys_alone_has_no_updates(compare: Compare) -> None:
    keys = pa.schema([("k", pa.string())])
    changes = compare(table(("a",), ("b",), schema=keys), table(("b",), ("c",), schema=keys))
    assert changes == [{"k": "a", CHANGE: "insert"}, {"k": "c", CHANGE: "delete"}]


def test_nothing_against_nothing_is_no_difference(compare: Compare) -> None:
    assert compare(table(), table()) == []


TYPES = pa.schema(
    [
        ("k", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("raw", pa.binary()),
    ]
)
NOON = datetime(2013, 3, 31, 12, 0, 0, 1, tzinfo=UTC)
FULL: Row = ("a", NOON, date(2013, 3, 31), Decimal("1.50"), ["x", None], b"\x00\xff")


@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("at", NOON.replace(microsecond=2)),
        ("day", date(2013, 4, 1)),
        ("price", Decimal("1.51")),
        ("tags", ["x", "y"]),
        ("tags", None),
        ("raw", b"\x00\xfe"),
    ],
)
def test_every_type_is_compared_to_its_last_digit_and_kept(compare: Compare, column: str, other: object) -> None:
    should, live = table(FULL, schema=TYPES), table(FULL, schema=TYPES)
    assert compare(should, live) == []
    changed = dict(zip(TYPES.names, FULL, strict=True)) | {column: other}
    (row,) = compare(should, pa.Table.from_pylist([changed], schema=TYPES))
    assert {name: row[name] for name in TYPES.names} == dict(zip(TYPES.names, FULL, strict=True))
    assert row[BEFORE + column] == other


@by_both
@pytest.mark.parametrize(
    "moment", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
)
def test_the_ends_of_the_calendar_survive(compare: Compare, moment: datetime) -> None:
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    (row,) = compare(table(("a", moment), schema=schema), table(schema=schema))
    assert row["at"] == moment


@by_both
def test_estimates_differ_beyond_both_their_errors(compare: Compare) -> None:
    cases: list[Case] = [
        (100.0, 104.0, False),
        (100.0, 104.2, True),
        (-100.0, -104.0, False),
        (-2.0, 2.0, True),
        (0.0, 0.0, False),
        (None, None, False),
        (None, 100.0, True),
        (100.0, None, True),
    ]
    assert differing(compare, cases, {"x": 0.02}) == expected(cases)


@by_both
def test_doubles_of_a_table_differ_beyond_what_rounding_makes_of_them(compare: Compare) -> None:
    cases: list[Case] = [
        (0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, False),
        (0.1 + 0.2 - 0.3, 0.0, False),
        (1e15, 1e15 + 1, False),
        (1e9, 1e9 + 0.01, True),
        (1e-9, 2e-9, True),
        (0.0, 1e-11, True),
        (-1.0, 1.0, True),
        (NAN, NAN, False),
        (NAN, 1.0, True),
        (1.0, NAN, True),
        (float("inf"), 1.0, True),
        (float("inf"), float("-inf"), True),
        (float("inf"), float("inf"), False),
        (None, 0.0, True),
    ]
    assert differing(compare, cases, {}) == expected(cases)
    unequal = [case for case in cases if not (case[0] is case[1] or case[0] == case[1])]
    assert differing(compare, cases, {"x": 0.0}) == unequal


@by_both
@pytest.mark.parametrize(("live", "differs"), [(1.0000001, False), (1.00001, True)])
def test_floats_have_fewer_digits(compare: Compare, live: float, differs: bool) -> None:
    schema = pa.schema([("k", pa.string()), ("x", pa.float32())])
    rows = table(("a", 1.0), schema=schema), table(("a", live), schema=schema)
    assert bool(compare(*rows, approximate={})) is differs


def test_a_key_and_a_whole_number_are_exact(compare: Compare) -> None:
    live = table(("a", 10**15 + 1, 1.0))
    assert [row["n"] for row in compare(table(("a", 10**15, 1.0)), live, approximate={})] == [10**15]
    assert len(compare(table(("a", 1, 0.6)), table(("a", 1, 0.1 + 0.2 + 0.3)), ["k", "x"], approximate={})) == 2


def test_sketches_alone_make_no_row_differ(compare: Compare) -> None:
    live = table(("same", 1, 1.0), ("other", 1, 1.0))
    found = compare(table(("same", 1, 2.0), ("other", 2, 2.0)), live, approximate={"x": float("inf")})
    assert [(row["k"], row["x"]) for row in found] == [("other", 2.0)]


@by_both
def test_values_with_structure_differ_by_what_they_hold(compare: Compare) -> None:
    part = pa.struct([pa.field("n", pa.int64()), pa.field("names", pa.list_(pa.string()))])
    schema = pa.schema([("k", pa.string()), ("m", pa.map_(pa.string(), pa.int64())), ("s", part)])
    rows: dict[str, tuple[Any, Any]] = {
        "other order": ([("a", 1), ("b", 2)], {"n": 1, "names": ["x"]}),
        "other value": ([("a", 1)], {"n": 1, "names": None}),
        "other key": ([("a", 1)], None),
        "other field": (None, {"n": None, "names": ["x"]}),
        "other element": ([], {"n": 1, "names": ["x", None]}),
        "same": (None, None),
    }
    changes: dict[str, tuple[Any, Any]] = {
        "other order": ([("b", 2), ("a", 1)], {"n": 1, "names": ["x"]}),
        "other value": ([("a", 2)], {"n": 1, "names": None}),
        "other key": ([("b", 1)], None),
        "other field": (None, {"n": 1, "names": ["x"]}),
        "other element": ([], {"n": 1, "names": ["x", "y"]}),
        "same": (None, None),
    }
    found = compare(*(table(*((k, *cells) for k, cells in side.items()), schema=schema) for side in (rows, changes)))
    assert [row["k"] for row in found] == ["other element", "other field", "other key", "other value"]
    assert [(row["m"], row["s"]) for row in found] == [rows[row["k"]] for row in found]


@by_both
def test_many_maps_with_nulls_in_them_are_compared(compare: Compare) -> None:
    """Of so many rows Spark takes Arrow's columns, and copies the maps in them."""
    kind = pa.struct([pa.field("n", pa.int32(), nullable=False), pa.field("m", pa.map_(pa.string(), pa.int32()))])
    values = pa.array([{"n": 1, "m": [("a", None), ("b", number)]} for number in range(20_000)], kind)
    rows = pa.table({"k": pa.array(map(str, range(20_000))), "v": values})
    changed = pa.concat_tables([rows.slice(0, 1).set_column(1, "v", rows["v"].slice(1, 1)), rows.slice(1)])
    assert compare(rows, rows) == []
    assert [(row["k"], row["v"]["m"]) for row in compare(rows, changed)] == [("0", [("a", None), ("b", 0)])]


@by_both
def test_maps_within_other_values_differ_by_what_they_hold(compare: Compare) -> None:
    by = pa.struct([("by hour", pa.list_(pa.map_(pa.string(), pa.int64())))])
    schema = pa.schema([("k", pa.string()), ("deep", pa.map_(pa.string(), by))])

    def value(*maps: list[tuple[str, int | None]]) -> list[tuple[str, Any]]:
        return [("x", {"by hour": list(maps)}), ("y", None)]

    pairs: dict[str, tuple[Any, Any]] = {
        "other order": (value([("a", 1), ("b", 2)]), value([("b", 2), ("a", 1)])[::-1]),
        "other value": (value([("a", 1), ("b", 2)]), value([("b", 3), ("a", 1)])),
        "no value": (value([("a", 1)]), value([("a", None)])),
        "other length": (value([]), value()),
        "null": (value(), None),
        "same": (None, None),
    }
    sides = (table(*((k, pair[side]) for k, pair in pairs.items()), schema=schema) for side in (0, 1))
    assert [row["k"] for row in compare(*sides)] == ["no value", "null", "other length", "other value"]
