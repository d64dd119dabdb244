"""Rows with a column of each type, whose values are the unusual ones of that type, in two layouts of files."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.tables.function_shapes import arguments_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS = 900
_NAN, _INF = float("nan"), float("inf")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_TIMES = (datetime(1, 1, 1), datetime(1582, 10, 10, 10, 30), datetime(9999, 12, 31, 23, 59, 59, 999_999))
UNUSUAL: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "tinyint": (pa.int8(), [-128, -1, 0, 1, 127]),
    "smallint": (pa.int16(), [-32768, -1, 0, 1, 32767]),
    "int": (pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "float": (pa.float32(), [_NAN, -0.0, 0.0, _INF, 1e-45, 0.1]),
    "double": (pa.float64(), [_NAN, -0.0, 0.0, _INF, 5e-324, 0.1]),
    "decimal": (pa.decimal128(10, 2), [Decimal("-99999999.99"), Decimal("0.00"), Decimal("99999999.99")]),
    "wide": (pa.decimal128(38, 18), [Decimal("-99999999999999999999.9"), Decimal(0), Decimal("1e-18")]),
    "string": (
        pa.string(),
        ["", "a", "A", "\u00e4", "a\u0308", "\U0001f600", " 1 ", "12.5", "1500-02-28", '{"a": 1}', "a,b", "NaN", "\0"],
    ),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff\xfe", b"a"]),
    "date": (pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(1969, 12, 31), date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), [time.replace(tzinfo=UTC) for time in _TIMES]),
    "timestamp_ntz": (pa.timestamp("us"), list(_TIMES)),
    "array_double": (pa.list_(pa.float64()), [[], [None], [_NAN, -0.0, 0.0], [0.1, _INF]]),
    "array_string": (pa.list_(pa.string()), [[], [None], ["", "a", "A"]]),
    "array_int": (pa.list_(pa.int32()), [[], [None], [3, 1, 2]]),
    "map": (pa.map_(pa.string(), pa.int32()), [[], [("a", None), ("b", 1)], [("b", 1), ("a", None)]]),
    "struct": (
        pa.struct([("a", pa.float64()), ("b", pa.string())]),
        [{"a": _NAN, "b": None}, {"a": -0.0, "b": ""}, {"a": 0.0, "b": ""}],
    ),
}  # fmt: skip
"""Type -> as Arrow has it, and its unusual values."""


def _usual(kind: str, chance: random.Random) -> Any:
    """Returns one of the many values of a type that functions take without an error."""
    number = chance.randint(1, 99)
    at = _EPOCH + timedelta(seconds=chance.randint(0, 10**9))
    return {
        "boolean": number > 50, "tinyint": number, "smallint": number, "int": number * 97, "bigint": number * 10**4,
        "float": chance.uniform(0.1, 100), "double": chance.uniform(0.1, 100), "decimal": Decimal(number) / 4,
        "wide": Decimal(number) / 8, "string": str(number % 40), "binary": b"%d" % number, "date": at.date(),
        "timestamp": at, "timestamp_ntz": at.replace(tzinfo=None), "array_double": [chance.uniform(0.1, 100), 1.5, 0.1],
        "array_string": [str(number), "a"], "array_int": [number, 2], "map": [(str(number), number), ("a", 1)],
        "struct": {"a": chance.uniform(0.1, 100), "b": str(number)},
    }[kind]  # fmt: skip


def table() -> pa.Table:
    """The group 0 has usual values alone, 1 also nulls, 2 unusual ones as well."""
    chance = random.Random(7)
    columns: dict[str, list[Any]] = {kind: [] for kind in UNUSUAL}
    for n in range(ROWS):
        for kind, (_, unusual) in UNUSUAL.items():
            usual = _usual(kind, chance)
            other = [usual, chance.choice([usual, usual, None]), chance.choice([usual, usual, None, *unusual])]
            columns[kind].append(other[n % 3])
    arrays = {f"c_{kind}": pa.array(values, UNUSUAL[kind][0]) for kind, values in columns.items()}
    return pa.table(
        {"id": pa.array(range(ROWS), pa.int64()), "k": pa.array([n % 3 for n in range(ROWS)], pa.int64()), **arrays}
    )


TYPES = {
    **{kind: f"c_{kind}" for kind in UNUSUAL},
    "collated": "collate(c_string, 'UTF8_LCASE')",
    "variant": "to_variant_object(c_struct)",
    "interval": "(c_timestamp_ntz - TIMESTAMP_NTZ'2000-01-01 00:00:00')",
    "months": "make_ym_interval(0, c_tinyint)",
    "time": "make_time(c_tinyint % 24, 1, 2)",
    "hll": "s_hll", "theta": "s_theta", "kll_bigint": "s_kll_bigint", "kll_double": "s_kll_double",
    "kll_float": "s_kll_float", "tuple_double": "s_tuple_double", "tuple_integer": "s_tuple_integer", "top": "s_top",
}  # fmt: skip
"""Type -> an expression of a column of it; sketches are types as well."""

_SKETCHES = """
    hll_sketch_agg(v) AS s_hll, theta_sketch_agg(v, 4) AS s_theta, kll_sketch_agg_bigint(v, 8) AS s_kll_bigint,
    kll_sketch_agg_double(double(v), 8) AS s_kll_double, kll_sketch_agg_float(float(v), 8) AS s_kll_float,
    tuple_sketch_agg_double(v, double(v) / 7, 4) AS s_tuple_double, approx_top_k_accumulate(v, 8) AS s_top,
    tuple_sketch_agg_integer(v, int(v), 4) AS s_tuple_integer)
"""


def layouts(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    """Returns the rows from one file in order, and from seven files in disorder, in five tasks."""
    from pyspark.sql import functions as F

    rows = spark.createDataFrame(table()).withColumn("d", F.expr("double(id) * 1.1 + 0.3 * (id % 7)"))
    numbers = spark.range(30).selectExpr("id AS g", "explode(transform(sequence(1, 20), n -> (id + n * n) % 500)) AS v")
    sketches = numbers.groupBy("g").agg(*(F.expr(one) for one in arguments_of(_SKETCHES)))
    rows.join(sketches, F.expr("id % 30 = g")).orderBy("id").coalesce(1).write.parquet(f"{folder}/ordered")
    ordered = spark.read.parquet(f"{folder}/ordered")
    ordered.repartition(7, "id").sortWithinPartitions(F.hash("id", F.lit(5))).write.parquet(f"{folder}/scattered")
    return ordered, spark.read.parquet(f"{folder}/scattered").repartition(5, F.hash("id", F.lit(9)))
