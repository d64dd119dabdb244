"""Compares rows by fingerprints of hash buckets, so that only unequal buckets are compared row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twofold.infra.instants import DAY_MS
from twofold.infra.rows.rows import cast_like, without_maps
from twofold.tables.declare.table import Table
from twofold.tables.refresh.json_values import EXACT_JSON
from twofold.tables.refresh.row_diff import matching
from twofold_algebra.sql.names import SPARK

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_PER_DAY = 16
_DAY, _PART = "_day", "_part"
_ONE, HASH = "_one", "_hash"


@dataclass(frozen=True)
class Turn:
    """The share of a table's rows that is audited, by their day, or by their key if they have no day.

    Attributes:
        number: 0 to `of` - 1.
    """

    number: int = 0
    of: int = 1

    def takes(self, day: int) -> bool:
        """Whether rows of this day, counted from 1970, belong to the share."""
        return day % self.of == self.number


@dataclass(frozen=True, kw_only=True)
class BucketRows:
    """The counts of one bucket on both sides.

    Attributes:
        place: the values that its rows share.
        one, other: the number of rows of each side.
        is_equal: whether both sides have the same rows, in any order.
    """

    place: tuple[int, ...]
    one: int
    other: int
    is_equal: bool


@dataclass(frozen=True, kw_only=True)
class BucketComparison:
    """The comparison of two sides of a table by buckets.

    Attributes:
        buckets: the number of those with a row on either side.
        rows: of the live side.
        differing: (day, part) of the buckets whose fingerprints differ.
    """

    buckets: int
    rows: int
    differing: Sequence[tuple[int, int]]


def of_turn(table: Table, frame: DataFrame, turn: Turn) -> DataFrame:
    """Filters rows to the share."""
    from pyspark.sql import functions as F

    number = _day(table) if table.event_time else _hash(table)
    return frame if turn.of == 1 else frame.where(F.pmod(number, F.lit(turn.of)) == turn.number)


def compare_buckets(table: Table, should: DataFrame, live: DataFrame, *, with_doubles: bool = True) -> BucketComparison:
    """Finds the buckets, each a day and a part of its keys, in which two sides differ, in one pass over both.

    Columns with a tolerance are left out. Doubles are compared exactly, though rounding does not make rows differ.
    """
    expected = cast_like(should, live)
    compared = [
        column
        for column, kind in live.dtypes
        if not (table.tolerances or {}).get(column) and (with_doubles or not ("double" in kind or "float" in kind))
    ]
    differing = compare_groups(live, expected, {_DAY: _day(table), _PART: _part(table)}, compared)
    return BucketComparison(
        buckets=len(differing),
        rows=sum(group.one for group in differing),
        differing=sorted((group.place[0], group.place[1]) for group in differing if not group.is_equal),
    )


def compare_groups(
    one: DataFrame, other: DataFrame, by: Mapping[str, Column], columns: Sequence[str]
) -> list[BucketRows]:
    """Compares two sides of the same schema group by group, in one pass over both.

    Each group is compared by its number of rows and by sum and xor of their hashes: only two different rows with one
    hash, or pairs of such rows, could hide a difference.

    Args:
        by: a name -> the whole number that rows of a group share.
    """
    from pyspark.sql import functions as F

    both = one.withColumn(_ONE, F.lit(True)).unionByName(other.withColumn(_ONE, F.lit(False)))
    numbers = [number.alias(name) for name, number in by.items()]
    hashed = both.select(*numbers, _ONE, row_hash(one, columns).alias(HASH))
    groups: dict[tuple[int, ...], dict[bool, tuple[int, str, int]]] = {}
    for row in hashed.groupBy(*by, _ONE).agg(F.count("*").alias("rows"), *totals()).toArrow().to_pylist():
        sides = groups.setdefault(tuple(row[name] for name in by), {})
        sides[row[_ONE]] = row["rows"], row["total"], row["xor"]
    none = (0, "", 0)
    return [
        BucketRows(
            place=place,
            one=sides.get(True, none)[0],
            other=sides.get(False, none)[0],
            is_equal=sides.get(True) == sides.get(False),
        )
        for place, sides in groups.items()
    ]


def totals() -> tuple[Column, Column]:
    """Returns aggregates `total` and `xor` of the column `_hash`, which do not depend on the order of rows."""
    from pyspark.sql import functions as F

    # A sum of longs would overflow.
    return F.sum(F.col(HASH).cast("decimal(20,0)")).cast("string").alias("total"), F.bit_xor(HASH).alias("xor")


def in_buckets(table: Table, frame: DataFrame, buckets: Sequence[tuple[int, int]]) -> DataFrame:
    """Filters rows to these buckets."""
    from pyspark.sql import functions as F

    spark, columns = frame.sparkSession, frame.columns
    buckets_frame = spark.createDataFrame(list(buckets), f"{_DAY} bigint, {_PART} bigint")
    placed = frame.withColumn(_DAY, _day(table)).withColumn(_PART, _part(table))
    return placed.join(F.broadcast(buckets_frame), [_DAY, _PART], "left_semi").select(*columns)


def unfound(table: Table, sides: Sequence[DataFrame], found: pa.Table) -> int:
    """Counts the buckets that differ in more than rounding even without the found rows, as under a collation."""
    rest = (matching(side, found, table.primary_key, "ANTI") for side in sides)
    return len(compare_buckets(table, *rest, with_doubles=False).differing)


def _day(table: Table) -> Column:
    """Returns the days since 1970 of the row's event time; -1 if it has none."""
    from pyspark.sql import functions as F

    if table.event_time is None:
        return F.lit(-1).cast("bigint")
    days = F.floor(F.unix_millis(F.col(table.event_time).cast("timestamp")) / DAY_MS).cast("bigint")
    return F.coalesce(days, F.lit(-1))


def _part(table: Table) -> Column:
    from pyspark.sql import functions as F

    return F.pmod(_hash(table), F.lit(_PER_DAY)).cast("bigint")


def _hash(table: Table) -> Column:
    from pyspark.sql import functions as F

    return F.xxhash64(*table.recompute_by) if table.recompute_by else F.lit(0).cast("bigint")


def row_hash(rows: DataFrame, columns: Sequence[str]) -> Column:
    """Hashes these columns of a row; rows that are equal, nulls included, have the same hash.

    Spark's hash skips nulls, so a null and a value could swap columns unnoticed; the null flags are therefore hashed,
    too.
    """
    from pyspark.sql import functions as F

    parts: list[Column] = []
    for name in columns:
        parts += [_hashable(rows, name), F.col(SPARK.name(name)).isNull()]
    return F.xxhash64(*parts)


def _hashable(rows: DataFrame, name: str) -> Column:
    """Converts a column to one that can be hashed: arrays, structs and maps to JSON, with sorted entries of maps.

    Spark cannot hash maps, and nulls within a nested value could swap places unnoticed.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not isinstance(rows.schema[name].dataType, ArrayType | MapType | StructType):
        return F.col(SPARK.name(name))
    return F.to_json(F.expr(without_maps(SPARK.name(name), rows, name, SPARK)), EXACT_JSON)
