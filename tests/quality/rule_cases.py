"""Literal rows, rules and the reasons that they must get, the same on both paths."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.quality.row_checks import split
from twofold.quality.rules import Rule, between, matches, not_null, one_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAN = float("nan")


def numbered(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table.append_column("row", pa.array(range(len(table)), pa.int32())))


def reasons(df: DataFrame, rules: tuple[Rule, ...], rows: int) -> list[list[str]]:
    """Per row, in order, what `split` says; fails when a row is on both sides or on none."""
    accepted, rejected = split(df, rules)
    found: list[tuple[int, list[str]]] = [(row["row"], []) for row in accepted.select("row").collect()]
    found += [(row["row"], row["_reasons"]) for row in rejected.select("row", "_reasons").collect()]
    assert sorted(number for number, _ in found) == list(range(rows))
    return [said for _, said in sorted(found, key=lambda pair: pair[0])]


def instant(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


@dataclass(frozen=True)
class Case:
    """Values of the column `v`, and for each the rules that it must break, by their index."""

    name: str
    type: pa.DataType
    rules: tuple[Rule, ...]
    rows: tuple[tuple[object, tuple[int, ...]], ...]

    @property
    def table(self) -> pa.Table:
        return pa.table({"v": pa.array([value for value, _ in self.rows], self.type)})

    @property
    def reasons(self) -> list[list[str]]:
        return [[str(self.rules[number]) for number in broken] for _, broken in self.rows]


UTC_US = pa.timestamp("us", tz="UTC")
CASES = [
    Case(
        "whole numbers at their bounds",
        pa.int32(),
        (between("v", -240, 2880), between("v", None, 0), between("v", 0, None), not_null("v")),
        ((-240, (2,)), (-241, (0, 2)), (2880, (1,)), (2881, (0, 1)), (0, ()), (None, (3,))),
    ),
    Case(
        "long numbers beyond what a double holds",
        pa.int64(),
        (between("v", 0, 2**53), one_of("v", [2**53 + 1, 5])),
        ((2**53, (1,)), (2**53 + 1, (0,)), (5, ()), (None, ())),
    ),
    Case(
        "NaN lies between no bounds, not even open ones",
        pa.float64(),
        (between("v", 0, 1), between("v", 0, None), between("v", None, 1), one_of("v", [0.5, 7.0]), not_null("v")),
        (
            (NAN, (0, 1, 2, 3)),
            (None, (4,)),
            (0.5, ()),
            (7.0, (0, 2)),
            (-0.0, (3,)),
            (float("inf"), (0, 2, 3)),
            (float("-inf"), (0, 1, 3)),
        ),
    ),
    Case(
        "fractions bound whole numbers",
        pa.int32(),
        (between("v", 0.5, 2.5), one_of("v", [1.0, 2.5]), one_of("v", [2**40])),
        ((0, (0, 1, 2)), (1, (2,)), (2, (1, 2)), (3, (0, 1, 2)), (None, ())),
    ),
    Case(
        "a fraction bounds long numbers that no double holds",
        pa.int64(),
        (between("v", 0.5, None), one_of("v", [0.5, 3])),
        ((2**53 + 1, (1,)), (0, (0, 1)), (3, ()), (None, ())),
    ),
    Case(
        "both zeros are one value",
        pa.float64(),
        (one_of("v", [0]), one_of("v", [-0.0, 1.5]), between("v", 0, 0)),
        ((-0.0, ()), (0.0, ()), (1.5, (0, 2)), (None, ())),
    ),
    Case(
        "decimals are compared with whole numbers and fractions",
        pa.decimal128(9, 2),
        (one_of("v", [3, 2**40]), one_of("v", [0.1, 1.555]), between("v", 0.1, 3)),
        (
            (Decimal("3.00"), (1,)),
            (Decimal("0.10"), (0,)),
            (Decimal("1.55"), (0, 1)),
            (Decimal("1.56"), (0, 1)),
            (Decimal("-1.00"), (0, 1, 2)),
            (None, ()),
        ),
    ),
    Case(
        "short fractions are compared with long numbers",
        pa.float32(),
        (one_of("v", [2**53 + 1, 2]), between("v", None, 2**53 + 1)),
        ((2.0, ()), (1.0, (0,)), (None, ())),
    ),
    Case(
        "the whole text must match",
        pa.string(),
        (matches("v", "[A-Z]{3}"),),
        (("EWR", ()), ("EWR\n", (0,)), ("xEWR", (0,)), ("EWRx", (0,)), ("ewr", (0,)), ("", (0,)), (None, ())),
    ),
    Case(
        "an alternative is anchored on both sides",
        pa.string(),
        (matches("v", "a|bc"),),
        (("a", ()), ("bc", ()), ("ac", (0,)), ("abc", (0,)), ("bca", (0,))),
    ),
    Case(
        "a dot is one character of any alphabet but no newline",
        pa.string(),
        (matches("v", "."), matches("v", r"\w+"), matches("v", r"\d"), matches("v", r"a\sb"), matches("v", r"[^\d]")),
        (
            ("é", (1, 2, 3)),
            ("😀", (1, 2, 3)),
            ("\n", (0, 1, 2, 3)),
            ("\u2028", (1, 2, 3)),
            ("\r", (1, 2, 3)),
            ("٣", (1, 2, 3)),
            ("3", (3, 4)),
            ("a\u00a0b", (0, 1, 2, 3, 4)),
            ("a\x0bb", (0, 1, 2, 3, 4)),
            ("a b", (0, 1, 2, 4)),
            ("e\u0301", (0, 1, 2, 3, 4)),
        ),
    ),
    Case(
        "texts are compared as written",
        pa.string(),
        (one_of("v", ["departed", "Zürich", ""]), not_null("v")),
        (
            ("departed", ()),
            ("Departed", (0,)),
            ("departed ", (0,)),
            ("Zürich", ()),
            ("Zu\u0308rich", (0,)),
            ("", ()),
            (None, (1,)),
        ),
    ),
    Case(
        "timestamps at their bounds",
        UTC_US,
        (
            between("v", "2013-01-01T00:00:00Z", "2013-01-31T23:59:59.999999Z"),
            between("v", "2013-01-01T02:00:00+02:00", None),
            between("v", "2013-01-01", "2013-01-31"),
        ),
        (
            (instant("2013-01-01T00:00:00+00:00"), ()),
            (instant("2012-12-31T23:59:59.999999+00:00"), (0, 1, 2)),
            (instant("2013-01-31T00:00:00+00:00"), ()),
            (instant("2013-01-31T23:59:59.999999+00:00"), (2,)),
            (instant("2013-02-01T00:00:00+00:00"), (0, 2)),
            (None, ()),
        ),
    ),
    Case(
        "dates at their bounds",
        pa.date32(),
        (between("v", "2013-01-01", "2013-01-31"), not_null("v")),
        (
            (dt.date(2013, 1, 1), ()),
            (dt.date(2013, 1, 31), ()),
            (dt.date(2012, 12, 31), (0,)),
            (dt.date(2013, 2, 1), (0,)),
            (None, (1,)),
        ),
    ),
    Case(
        "booleans",
        pa.bool_(),
        (one_of("v", [True]), not_null("v")),
        ((True, ()), (False, (0,)), (None, (1,))),
    ),
    Case(
        "an empty list is a value",
        pa.list_(pa.int32()),
        (not_null("v"),),
        (([], ()), ([1], ()), (None, (0,))),
    ),
    Case("no rows", pa.string(), (not_null("v"), matches("v", "a")), ()),
    Case("no rules", pa.string(), (), (("a", ()), (None, ()))),
    Case(
        "every rule broken at once, in the declared order",
        pa.string(),
        (one_of("v", ["a"]), matches("v", "b"), one_of("v", ["c"])),
        (("d", (0, 1, 2)), ("e", (0, 1, 2))),
    ),
]
