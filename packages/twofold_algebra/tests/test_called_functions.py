"""Impure functions are found by their names, in what is called and in SQL text; what only names one is pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

from twofold_algebra.reading.called_functions import impure_function
from twofold_algebra.sql.impure_functions import IMPURE, find_impure


def sql(query: str, **inputs: Any) -> Any:
    """Runs a query over its inputs."""
    return inputs["orders"].sparkSession.sql(query, None, **inputs)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda orders: orders.withColumn("x", F.rand(7)), "rand"),
        (lambda orders: orders.where(F.col("at") < F.current_timestamp()), "current_timestamp"),
        (lambda orders: orders.withColumn("x", F.unix_timestamp()), "unix_timestamp"),
        (lambda orders: orders.withColumn("x", F.call_function("system.builtin.UUID")), "uuid"),
        (lambda orders: orders.withColumn("x", F.expr("coalesce(x, Aes_Encrypt(a, b))")), "aes_encrypt"),
        (lambda orders: orders.selectExpr("current_user AS x"), "current_user"),
        (lambda orders: sql("SELECT * FROM {orders} TABLESAMPLE (5 ROWS) WHERE now ( ) > at", orders=orders), "now"),
        (lambda orders: orders.join(orders.sample(0.5).select(F.explode(F.array(F.shuffle("a")))), "a"), "shuffle"),
    ],
)
def test_an_impure_function_is_found_by_its_name(function: Callable[..., Any], name: str) -> None:
    assert impure_function(function, ("orders",)) == name


@pytest.mark.parametrize(
    "function",
    [
        lambda orders: orders.where(F.col("name") != "Join now()"),
        lambda orders: orders.where("name <> 'Join now()'"),
        lambda orders: orders.select(F.lit("rand(").alias("user")).where("user = 'uuid()'"),
        lambda orders: sql("SELECT name, `now` FROM {orders} WHERE name <> 'now(' -- rand()", orders=orders),
        lambda orders: orders.withColumn("x", F.unix_timestamp("at")),
    ],
)
def test_a_name_in_a_text_is_pure(function: Callable[..., Any]) -> None:
    assert impure_function(function, ("orders",)) is None


@pytest.mark.parametrize("name", sorted(IMPURE))
def test_sql_that_calls_one_names_it(name: str) -> None:
    assert find_impure(f"a > '{name}()' AND {name.upper()} (1) = b") == name
    assert find_impure(f"a > '{name}()' AND my_{name}(1) = b") is None
