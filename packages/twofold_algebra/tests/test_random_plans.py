"""Random functions over random rows: what is inferred of scopes holds when Spark runs them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.tiers import this_run
from twofold_algebra.dependencies import by_source, scope_of, unknown_in
from twofold_algebra.expression_sql import sql_of
from twofold_algebra.reading.connect_plan import read_function
from twofold_algebra.relations import Relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = this_run.seed
PLANS = 20 * (this_run.worlds or 1)
A = "k string, n long, x double, d decimal(38,0), at timestamp, tags array<string>, o struct<name: string>"
B = "k string, m long, name string"
COLUMNS = {"a": ["k", "n", "x", "d", "at", "tags", "o"], "b": ["k", "m", "name"]}
TEXTS = ["p", "P", "q", "q ", "\u00df", None]
Step = Callable[["DataFrame", "DataFrame"], "DataFrame"]


def rows(dice: random.Random) -> tuple[list[Any], list[Any]]:
    """Rows of both inputs, with nulls, NaN, zeros of both signs and numbers beyond 64 bits."""
    first = datetime(2019, 12, 31, 22, tzinfo=UTC)
    a = [
        (
            dice.choice(TEXTS),
            dice.choice([None, 0, 1, 2, 3]),
            dice.choice([None, 0.0, -0.0, 1.5, float("nan")]),
            dice.choice([None, Decimal(10) ** 37, Decimal(10) ** 37 + 1]),
            first + timedelta(hours=dice.randrange(6)),
            dice.choice([[], ["u"], ["u", "v"], None]),
            dice.choice([None, {"name": dice.choice(TEXTS)}]),
        )
        for _ in range(14)
    ]
    return a, [(dice.choice(TEXTS), dice.choice([None, 0, 1, 2]), dice.choice(TEXTS)) for _ in range(6)]


SHAPES = [
    ["project", "group"],
    ["group", "group"],
    ["join", "group"],
    ["project", "window", "filter"],
    ["union", "group"],
    ["explode", "group"],
    ["fill", "group"],
    ["join", "window"],
    ["self", "filter"],
    ["sql"],
    ["join", "join", "lower"],
    ["project", "distinct", "group"],
    ["rename", "window"],
]


def project(dice: random.Random) -> Step:
    value = dice.choice(["lower(k)", "year(at)", "coalesce(k, 'z')", "n % 2", "cast(d AS STRING)", "to_date(at)", "k"])
    return lambda a, _: a.selectExpr("*", f"{value} AS v").drop("n").withColumnRenamed("v", "n")


def group(dice: random.Random) -> Step:
    many = dice.choice(["*", None])

    def made(a: DataFrame, _: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        by = [F.col("k"), F.col("n").alias("g")][: 1 if many else 2]
        return a.groupBy(*by).agg(F.count("*").alias("n"), F.max("k").alias("most"))

    return made


def join(dice: random.Random) -> Step:
    how = dice.choice(["inner", "left", "right", "full", "left_semi", "left_anti"])
    kind = dice.choice(["using", "frames", "frames", "swapped", "expression", "alias"])
    key = f"key{dice.randrange(1_000_000)}"

    def made(a: DataFrame, b: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        if kind == "using":
            return a.join(b, "k", how)
        if kind == "alias":
            x, y = a.alias("x"), b.alias("y")
            both = x.join(y, F.col("y.k") == F.col("x.k"), how)
            rest = [] if how.startswith("left_") else ["y.m"]
            own = "x.k" if how.startswith("left_") else whole_side(how, "x.k", "y.k")
            return both.select(F.col(own).alias("k"), *rest, "x.n")
        c = b.withColumnsRenamed({"k": key, "m": f"m{key}", "name": f"name{key}"})
        condition = {
            "frames": a["k"] == c[key],
            "swapped": c[key] == a["k"],
            "expression": F.lower(a["k"]) == F.lower(c[key]),
        }[kind]
        both = a.join(c, condition, how)
        if how.startswith("left_"):
            return both
        return both if how != "full" else both.withColumn("k", F.coalesce("k", key))

    return made


def whole_side(how: str, left: str, right: str) -> str:
    """The side of which a row is there for certain."""
    return right if how == "right" else left


def window(dice: random.Random) -> Step:
    by = dice.choice(["k", "n", "k, n", ""])
    over = f"(PARTITION BY {by})" if by else "()"
    return lambda a, _: a.selectExpr("*", f"count(*) OVER {over} AS c")


def fill(dice: random.Random) -> Step:
    if dice.random() < 0.5:
        return lambda a, _: a.fillna("p", ["k"])
    return lambda a, _: a.replace("p", "q", ["k"])


STEPS: dict[str, Callable[[random.Random], Step]] = {
    "project": project,
    "lower": lambda _: lambda a, __: a.withColumn("n", a["k"]).selectExpr("lower(k) AS k", "n"),
    "group": group,
    "join": join,
    "window": window,
    "fill": fill,
    "filter": lambda _: lambda a, __: a.where("n IS NOT NULL OR k IS NULL"),
    "distinct": lambda _: lambda a, __: a.select("k", "n").distinct(),
    "union": lambda _: lambda a, b: a.select("k", "n").union(b.select("name", "m")),
    "explode": lambda _: lambda a, __: a.selectExpr("explode_outer(tags) AS n", "k"),
    "rename": lambda _: lambda a, __: a.withColumnsRenamed({"K": "k2", "N": "k"}).withColumnRenamed("k2", "n"),
    "self": lambda _: lambda a, __: a.alias("l").join(a.select("k", "x").distinct().alias("r"), "k").select("k", "n"),
    "sql": lambda dice: in_sql(dice),
}


def in_sql(dice: random.Random) -> Step:
    text = dice.choice(
        [
            "SELECT o.name AS k, count(*) AS n FROM {a} GROUP BY o.name",
            "SELECT k, n, sum(n) OVER (PARTITION BY k) AS s FROM {a}",
            "WITH c AS (SELECT k, m FROM {b}) SELECT a.k, n, m FROM {a} AS a LEFT JOIN c ON c.k = a.k",
            "SELECT DISTINCT lower(k) AS k, n FROM {a} UNION ALL SELECT name, m FROM {b}",
            "SELECT upper(k) AS u, at, max(x) AS x FROM {a} WHERE n IS NOT NULL GROUP BY 1, at HAVING count(*) > 0",
            "SELECT x, count(*) AS n FROM {a} GROUP BY x",
            "SELECT k, count(*) AS n, rank() OVER (ORDER BY count(*)) AS r FROM {a} GROUP BY k",
            "SELECT k, explode(sort_array(collect_list(n))) AS n FROM {a} GROUP BY k",
            "SELECT d, n, count(*) AS c FROM {a} GROUP BY d, n",
        ]
    )

    def made(a: DataFrame, b: DataFrame) -> DataFrame:
        from twofold import sql

        given = {name: frame for name, frame in {"a": a, "b": b}.items() if f"{{{name}}}" in text}
        return sql(text, **given)

    return made


def function_of(plan: list[tuple[str, Step]]) -> Callable[..., DataFrame]:
    def function(a: DataFrame, b: DataFrame) -> DataFrame:
        found = a
        for _, step in plan:
            found = step(found, b)
        return found

    return function


@pytest.mark.worlds
def test_rows_of_a_scope_need_no_other_rows_of_the_inputs(interpreted: SparkSession) -> None:
    """Twenty functions; each column that is inferred restricts the inputs to one of its values."""
    dice, held = random.Random(SEED), Counter[str]()
    for number in range(PLANS):
        plan = [(name, STEPS[name](dice)) for name in SHAPES[number % len(SHAPES)]]
        function, said = function_of(plan), f"plan {number}: {', '.join(name for name, _ in plan)}"
        root = read_function(function, COLUMNS)
        assert not unknown_in(root), said
        a, b = rows(dice)
        frames = {"a": interpreted.createDataFrame(a, A), "b": interpreted.createDataFrame(b, B)}
        result = function(**frames)
        whole, names = [tuple(row) for row in result.collect()], result.columns
        for place, column in enumerate(names):
            if names.count(column) == 1 and (scope := restrictions(root, column)):
                value = dice.choice([row[place] for row in whole] or [None])
                few = function(**{name: kept(frame, scope.get(name), value) for name, frame in frames.items()})
                found = [tuple(row) for row in few.collect()]
                assert with_value(found, place, value) == with_value(whole, place, value), (
                    f"{said}; {column}={value!r} by {scope}"
                )
                held[", ".join(SHAPES[number % len(SHAPES)])] += bool(scope)
    assert len(held) > 5, held


def restrictions(root: Relation, column: str) -> dict[str, str]:
    """Input -> the expression by which its rows matter to a value of the column."""
    value = root.value([column])
    found = by_source(root, scope_of(root, value)) if value is not None else {}
    return {name: sql for name, one in found.items() if (sql := sql_of(one))}


def kept(frame: DataFrame, by: str | None, value: Any) -> DataFrame:
    from pyspark.sql import functions as F

    return frame if by is None else frame.where(F.expr(by).eqNullSafe(F.lit(value)))


def with_value(found: list[tuple[Any, ...]], place: int, value: Any) -> Counter[str]:
    """The rows with this value, each as often as it is there."""
    return Counter(
        repr(row) for row in found if repr(row[place]).replace("-0.0", "0.0") == repr(value).replace("-0.0", "0.0")
    )
