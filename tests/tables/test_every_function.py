"""Each function of Spark over a column of each type: what is accepted gives the same rows whatever their order.

The orders differ in files, tasks and in whether Spark generates code; rows are compared here and by Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tests.tables.declared import a_table
from tests.tables.function_shapes import Shape, described, resolved
from tests.tables.unusual_rows import TYPES, layouts
from twofold.infra.rows.rows import count, in_spark
from twofold.infra.spark.spark_session import tune_for_batch_size
from twofold.tables.declare.analysis import wrong_types
from twofold.tables.refresh.row_diff import difference
from twofold_algebra.plan_mistakes import find_mistakes
from twofold_algebra.reading.connect_plan import read_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Sides = tuple["DataFrame", "DataFrame"]
_FAILED = re.compile(r"^== SQL .*==\n(.*)\n\^", re.MULTILINE)
"""The expression that fails, in an error of Spark or in one that has it as its cause."""


@pytest.fixture(scope="module")
def sides(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sides:
    return layouts(spark, tmp_path_factory.mktemp("layouts"))


def declared(shapes: Sequence[Shape], rows: DataFrame) -> DataFrame:
    """What a table's function makes of its rows: a column of each shape."""
    columns = [F.expr(shape.sql).alias(f"v{n}") for n, shape in enumerate(shapes)]
    match shapes[0].kind:
        case "group":
            return rows.groupBy("k").agg(*columns)
        case "key":
            return rows.groupBy(*columns).agg(F.count("*").alias("n"))
        case "generator":
            return rows.select("id", F.expr(shapes[0].sql))
    return rows.select("id", *columns)


def key_of(shape: Shape) -> list[str]:
    return {"group": ["k"], "key": ["v0"]}.get(shape.kind, ["id"])


def is_accepted(shape: Shape, rows: DataFrame) -> bool:
    """Whether nothing is said against the declaration, before Spark runs or when it analyses it."""
    root = read_function(lambda rows: declared([shape], rows), {"rows": rows.columns})
    return not any(not one.only_on_stream for one in find_mistakes(root, {"rows": ["id"]})) and is_stored(shape, rows)


def is_stored(shape: Shape, rows: DataFrame) -> bool:
    given = {"recompute_by": [], "event_time": None, "closes_at": None, "depends_within": None}
    try:
        return not list(wrong_types(a_table(primary_key=key_of(shape), **given), declared([shape], rows).schema))
    except (PySparkException, Py4JJavaError):  # the latter is a fault of its own analyser
        return False


def computed(shapes: Sequence[Shape], rows: DataFrame, *, few: bool) -> pa.Table | list[Shape]:
    """The rows; or else the shapes that Spark says it cannot compute, all of them if it does not say."""
    tune_for_batch_size(rows.sparkSession, few=few)
    try:
        return declared(shapes, rows).toArrow()
    except (PySparkException, Py4JJavaError, pa.ArrowException) as error:
        texts = _FAILED.findall(str(error))
        return [shape for shape in shapes if any(text in shape.sql for text in texts)] or list(shapes)
    finally:
        tune_for_batch_size(rows.sparkSession, few=False)


def differ(spark: SparkSession, one: pa.Table, other: pa.Table, key: Sequence[str]) -> bool:
    if not any(
        name.startswith("v") and name[1:].isdigit() for name in one.column_names
    ):  # rows that a generator makes have no key
        return sorted(map(repr, one.to_pylist())) != sorted(map(repr, other.to_pylist()))
    other = other.cast(one.schema)
    by_spark = difference(in_spark(spark, one), in_spark(spark, other), key, approximate={})
    return bool(len(difference(one, other, key, approximate={})) or count(by_spark))


def found(spark: SparkSession, shapes: Sequence[Shape], sides: Sides, where: str = "true") -> list[str]:
    """The shapes whose rows differ between the orders; those that fail for unusual rows, by the usual ones."""
    left, failing, wrong = list(shapes), list[Shape](), list[str]()
    while left and isinstance(rows := both(left, sides, where), list):
        if len(rows) == len(left) > 1:
            half = len(left) // 2
            wrong += [*found(spark, left[:half], sides, where), *found(spark, left[half:], sides, where)]
        else:
            failing += rows
        left = [shape for shape in left if shape not in rows]
    if left:
        wrong += compared(spark, left, *rows)
    return [*wrong, *(found(spark, failing, sides, "k = 0") if failing and where == "true" else [])]


def both(shapes: Sequence[Shape], sides: Sides, where: str) -> tuple[pa.Table, pa.Table] | list[Shape]:
    one = computed(shapes, sides[0].where(where), few=True)
    if isinstance(one, list):
        return one
    other = computed(shapes, sides[1].where(where), few=False)
    return other if isinstance(other, list) else (one, other)


def compared(spark: SparkSession, shapes: Sequence[Shape], one: pa.Table, other: pa.Table) -> list[str]:
    key = key_of(shapes[0])
    if not differ(spark, one, other, key):
        return []
    if len(shapes) == 1:
        return [f"{shapes[0].type}: {shapes[0].sql}"]
    of_each = (([*key, f"v{n}"], shape) for n, shape in enumerate(shapes))
    return [f"{s.type}: {s.sql}" for names, s in of_each if differ(spark, one.select(names), other.select(names), key)]


def differing(spark: SparkSession, names: Sequence[str], types: Mapping[str, str], sides: Sides) -> list[str]:
    """The accepted shapes of these functions whose rows depend on the order."""
    wanted = [template for name in names for template in described(spark, name)]
    shapes = [shape for shape in resolved(spark, sides[0], types, wanted) if is_accepted(shape, sides[0])]
    assert len({shape.function for shape in shapes}) > len(names) / 2
    wrong = []
    for kind, size in {"row": 24, "group": 24, "window": 24, "generator": 1}.items():
        of_kind = [shape for shape in shapes if shape.kind == kind]
        for n in range(0, len(of_kind), size):
            wrong += found(spark, of_kind[n : n + size], sides)
    return wrong


def accepted_keys(sides: Sides) -> list[Shape]:
    shapes = [Shape("", name, "key", column) for name, column in TYPES.items()]
    return [shape for shape in shapes if is_accepted(shape, sides[0])]


SAMPLE = ["concat", "corr", "max", "rank", "sum"]
SOME_TYPES = ("double", "array_double")
SOME_KEYS = ("double", "string", "array_double", "struct")


def test_some_functions_give_the_same_rows_in_any_order(spark: SparkSession, sides: Sides) -> None:
    assert differing(spark, SAMPLE, {name: TYPES[name] for name in SOME_TYPES}, sides) == []


@pytest.mark.prove
@pytest.mark.timeout(7_200)
def test_each_function_gives_the_same_rows_in_any_order(spark: SparkSession, sides: Sides) -> None:
    """Thousands of declarations: half an hour."""
    names = sorted(row[0] for row in spark.sql("SHOW FUNCTIONS").collect())
    by_key = [wrong for shape in accepted_keys(sides) for wrong in found(spark, [shape], sides)]
    assert [*differing(spark, names, TYPES, sides), *by_key] == []


def test_groups_by_some_types_are_the_same_in_any_order(spark: SparkSession, sides: Sides) -> None:
    accepted = accepted_keys(sides)
    assert TYPES.keys() - {shape.type for shape in accepted} == {
        "collated", "variant", "interval", "months", "time", "map",
    }  # fmt: skip
    compared = [shape for shape in accepted if shape.type in SOME_KEYS]
    assert [wrong for shape in compared for wrong in found(spark, [shape], sides)] == []
