"""Columns, keys and scopes that follow from plans and SQL text, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType

from tests.tables.declared import a_table
from twofold import F, Window, sql
from twofold.tables.declare.inference import Inference, infer
from twofold.tables.declare.table import Draft

SALES = {"shop": "string", "day": "date", "kind": "string?", "n": "int?", "code": "string?"}
STOCK = {"shop": "string", "day": "date", "held": "int?"}
BY_SHOP = "SELECT shop, n, count(*) AS c FROM {a} WHERE %s GROUP BY ROLLUP(shop, n)"
RANKED = "SELECT *, %s() OVER (PARTITION BY shop ORDER BY %s) AS nth FROM {a}"
NEXT = "SELECT x.shop, x.day, y.n FROM ({0}) AS x JOIN ({0}) AS y ON x.shop = y.shop AND x.nth = y.nth + 1"
UNITED = "SELECT shop, day, {} AS part FROM {{a}} UNION ALL SELECT {}, day, 1 FROM {{b}} WHERE shop = 'x'"
FULL = "SELECT coalesce(x.shop, y.shop) AS shop, {}, n, held FROM {{a}} AS x FULL JOIN {{b}} AS y ON x.shop = y.shop {}"
TURNED = "SELECT * FROM (SELECT shop, n, kind FROM {a}) PIVOT (max(n) AS c FOR kind IN ('p', 'q' AS r))"
DAY = "coalesce(x.day, y.day) AS day"


def inferred(function: Callable[..., Any]) -> Inference:
    """What follows from a function of the tables `a` of sales and `b` of stock, a row for each shop and day."""
    names = {"a": SALES, "b": STOCK}
    of = function.__code__.co_varnames[: function.__code__.co_argcount]
    sources = {name: a_table(primary_key=["shop", "day"], kinds=names[name], event_time=None, closes_at=None,
                             depends_within=None, recompute_by=[]) for name in of}  # fmt: skip
    return infer(Draft(function, {}), sources, {name: list(names[name]) for name in of})


@pytest.mark.parametrize(
    ("function", "columns", "key"),
    [
        (lambda a: a.groupBy("shop").pivot("n", [1, 2]).count(), ["shop", "1", "2"], ["shop"]),
        (lambda a: a.groupBy("shop").pivot("n", [1]).agg(F.max("day"), F.count("*")), None, ["shop"]),
        (
            lambda a: a.groupBy("shop").pivot("kind", ["p"]).agg(F.max("n").alias("c"), F.min("n").alias("d")),
            ["shop", "p_c", "p_d"],
            ["shop"],
        ),
        (
            lambda a: sql(TURNED, a=a),
            ["shop", "p", "r"],
            ["shop"],
        ),
        (
            lambda a: a.unpivot(["shop", "day"], ["kind", "code"], "name", "value"),
            ["shop", "day", "name", "value"],
            ["shop", "day", "name"],
        ),
        (
            lambda a: sql("SELECT * FROM {a} UNPIVOT (value FOR name IN (kind, code AS c)) AS u", a=a),
            ["shop", "day", "n", "name", "value"],
            ["shop", "day", "name"],
        ),
    ],
)  # fmt: skip
def test_columns_turned_into_rows_and_back_are_known(function: Any, columns: Any, key: list[str]) -> None:
    found = inferred(function)
    assert (found.columns and list(found.columns), found.parameters["primary_key"]) == (columns, key)


def test_a_pivot_depends_on_the_rows_of_its_groups() -> None:
    found = inferred(lambda a: a.groupBy("shop").pivot("n", [1, 2]).count())
    assert found.scopes == {"shop": {"a": "shop"}}
    assert found.lineage["1"] == ["a.n"]


def test_conditions_and_groups_decide_about_rows_not_values() -> None:
    def sold(a: Any, b: Any) -> Any:
        of_kind = a.where("kind = 'p'").orderBy("code").join(b, a.shop == b.shop).where("held > n")
        return of_kind.groupBy(a.shop, F.window(a.day.cast("timestamp"), "1 day")).agg(F.sum("n").alias("sold"))

    found = inferred(sold)
    assert found.lineage["sold"] == ["a.n"]
    assert found.influences == {
        "which rows count": ["a.kind", "a.shop", "b.shop", "b.held", "a.n"],
        "which row they go to": ["a.shop", "a.day"],
    }
    assert inferred(lambda a: a.select("shop", "day")).influences == {}


@pytest.mark.parametrize(
    ("function", "untraced"),
    [
        (lambda a: a.select("shop", F.lit(1).alias("one"), F.count("*").over(Window.partitionBy("n")).alias("c")), []),
        (lambda a: a.rollup("shop").agg(F.sum("n").alias("n")), ["shop"]),
        (lambda a: a.select("shop", "n").unionByName(a.rollup("shop").agg(F.sum("n").alias("n"))), ["shop"]),
    ],
)
def test_a_column_of_what_is_not_understood_says_so(function: Any, untraced: list[str]) -> None:
    found = inferred(function)
    assert sorted(found.untraced) == untraced
    assert all(found.untraced.values())


@pytest.mark.parametrize(
    ("on", "scopes"),
    [
        ("x.n = y.code", {}),
        ("x.n = y.n", {"v": {"a": "n"}}),
        ("CAST(x.n AS STRING) = y.code", {}),
        ("x.n % 2 = y.code", {}),
    ],
)
def test_equal_values_of_different_types_are_no_scope(on: str, scopes: Any) -> None:
    """The texts `1` and `01` are both equal to the number 1."""
    found = inferred(lambda a: sql(f"SELECT x.n AS v FROM {{a}} AS x JOIN {{a}} AS y ON {on}", a=a))
    assert found.scopes == scopes


def test_a_union_of_different_types_has_no_scope_by_them() -> None:
    found = inferred(lambda a: sql("SELECT n AS v, shop FROM {a} UNION ALL SELECT code, shop FROM {a}", a=a))
    assert found.scopes == {"shop": {"a": "shop"}}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (BY_SHOP % "n > 0", ["shop", "n"]),
        (BY_SHOP % "n IS NOT NULL", ["shop", "n"]),
        (BY_SHOP % "n <=> 1 OR n > 0", None),
        (NEXT.format(RANKED % ("rank", "day")), ["shop", "day"]),
        (NEXT.format(RANKED % ("rank", "n")), None),
        (NEXT.format(RANKED % ("row_number", "n")), ["shop", "day"]),
        (NEXT.replace("x.day, ", "").format(RANKED % ("rank", "day")), None),
        ("SELECT n, shop, day FROM {a} UNION ALL SELECT NULL, shop, day FROM {b}", None),
        (UNITED.format(0, "shop"), ["part", "shop", "day"]),
        (UNITED.format("1", "NULL"), ["shop", "day"]),
        (UNITED.format("kind", "NULL"), ["shop", "day"]),
        (UNITED.format("kind", "shop"), None),
        (FULL.format(DAY, "AND x.day = y.day"), ["shop", "day"]),
        (FULL.format(DAY, "AND x.day = y.day AND n = held"), None),
        (FULL.format(DAY, "AND x.day = y.day AND n > 1"), None),
        (FULL.format("x.day", ""), None),
        ("SELECT n, kind FROM {a} WHERE shop = 'p' AND day = DATE '2020-01-01'", ["n"]),
        ("SELECT n, kind FROM {a} WHERE shop = 'p' AND day = '2020-01-01'", None),
        ("SELECT n, day FROM {a} WHERE shop = 'p'", ["day"]),
        ("SELECT x.n FROM (SELECT shop, max(n) AS n FROM {a} WHERE shop = 'p' GROUP BY shop) AS x", ["n"]),
    ],
)
def test_a_key_is_inferred_if_rows_cannot_share_it(text: str, key: list[str] | None) -> None:
    found = inferred((lambda a, b: sql(text, a=a, b=b)) if "{b}" in text else (lambda a: sql(text, a=a)))
    assert found.parameters.get("primary_key") == key


def test_a_rank_by_a_total_order_numbers_the_rows() -> None:
    def ranked(a: Any) -> Any:
        by_day = Window.partitionBy("shop").orderBy("day")
        return a.select("shop", F.rank().over(by_day).alias("nth"), "n")

    found = inferred(ranked)
    assert found.parameters["primary_key"] == ["shop", "nth"]


def test_a_function_of_arrow_arrays_is_one_of_each_row() -> None:
    def shown(values: pa.Array) -> pa.Array:
        raise AssertionError(values)

    found = inferred(lambda a: a.withColumn("kind", arrow_udf(shown, StringType())("kind", "n")))
    assert found.parameters["primary_key"] == ["shop", "day"]
    assert found.lineage["kind"] == ["a.kind", "a.n"]


@pytest.mark.parametrize(
    ("text", "copied"),
    [
        ("SELECT shop, n AS pieces, n + 1 AS more FROM {a}", {"shop": ("a", "shop"), "pieces": ("a", "n")}),
        ("SELECT a.n, b.held FROM {a} a LEFT JOIN {b} b ON a.shop = b.shop", {"n": ("a", "n"), "held": ("b", "held")}),
        ("SELECT shop, max(n) AS n FROM {a} GROUP BY shop", {"shop": ("a", "shop"), "n": ("a", "n")}),
        ("SELECT shop, max(n) AS most FROM {a} GROUP BY shop", {"shop": ("a", "shop")}),
        ("SELECT shop, sum(n) AS n FROM {a} GROUP BY shop", {"shop": ("a", "shop")}),
        ("SELECT shop, m.n FROM (SELECT shop, max_by(struct(n), day) AS m FROM {a} GROUP BY shop)",
         {"shop": ("a", "shop"), "n": ("a", "n")}),
        ("SELECT shop, n FROM {a} UNION ALL SELECT shop, NULL FROM {a}", {"shop": ("a", "shop"), "n": ("a", "n")}),
        ("SELECT n FROM {a} UNION ALL SELECT held FROM {b}", {}),
    ],
)  # fmt: skip
def test_columns_that_have_the_values_of_an_inputs_column_are_known(text: str, copied: Any) -> None:
    def function(a: Any, b: Any) -> Any:
        return sql(text, a=a, b=b)

    assert dict(inferred(function).copied) == copied


def test_a_value_that_some_rows_have_is_that_of_the_column() -> None:
    def function(a: Any) -> Any:
        above = F.col("n") > 1
        return a.select(F.when(above, F.col("kind")).alias("k"), F.when(above, 0).otherwise(F.col("n")).alias("n"))

    assert inferred(function).copied == {"k": ("a", "kind")}
