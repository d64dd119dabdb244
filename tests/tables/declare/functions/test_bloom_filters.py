"""Bloom filters never miss a member, seldom take a stranger for one, and do not mind who merged them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twofold.tables.declare.functions.bloom_filters import BYTES, may_hold, members, members_of_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MEMBERS, STRANGERS = 1_000, 20_000


def test_a_member_is_always_held_and_a_stranger_as_seldom_as_said(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    known = spark.range(MEMBERS).select(F.concat(F.lit("c"), "id").alias("who"))
    [row] = known.agg(members("who").alias("known")).collect()
    assert len(row["known"]) == 2 * BYTES
    asked = spark.range(MEMBERS + STRANGERS).select(
        (F.col("id") < MEMBERS).alias("member"), F.concat(F.lit("c"), "id").alias("who"), F.lit(row["known"]).alias("f")
    )
    held = dict(asked.where(may_hold("f", F.col("who"))).groupBy("member").count().collect())
    assert held[True] == MEMBERS
    assert 0 < held[False] < STRANGERS * 0.002  # 0.09 % by the formula


def test_merged_filters_are_the_filter_of_all_whatever_the_parts(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    known = spark.range(300).select(F.concat(F.lit("c"), "id").alias("who"), (F.col("id") % 7).alias("day"))
    [whole] = known.repartition(3).agg(members("who").alias("all")).collect()
    days = known.groupBy("day").agg(members("who").alias("known"))
    [merged] = days.agg(members_of_all("known").alias("all")).collect()
    assert merged["all"] == whole["all"]


def test_an_empty_filter_has_no_member_and_null_is_none(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    [row] = spark.createDataFrame([(None,)], "who string").agg(members("who").alias("known")).collect()
    assert row["known"] == bytes(2 * BYTES)
    asked = spark.createDataFrame([("c1",), (None,)], "who string").withColumn("f", F.lit(row["known"]))
    assert [r[0] for r in asked.select(may_hold("f", F.col("who"))).collect()] == [False, None]


def test_the_bits_are_those_of_the_digits_of_the_md5(spark: SparkSession) -> None:
    # MD5 of "a" begins with 0cc1 75b9: 0x0cc1 is 3265 = 408 * 8 + 1, and 0x75b9 is 30137 = 3767 * 8 + 1.
    [row] = spark.createDataFrame([("a",)], "who string").agg(members("who").alias("known")).collect()
    first, second = row["known"][:BYTES], row["known"][BYTES:]
    assert {n: byte for n, byte in enumerate(first) if byte} == {408: 2}
    assert {n: byte for n, byte in enumerate(second) if byte} == {3767: 2}


def test_a_number_is_known_by_its_digits(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    [row] = spark.range(10).agg(members("id").alias("known")).collect()
    frame = spark.range(1).withColumn("f", F.lit(row["known"]))
    assert frame.select(may_hold("f", F.lit(7)), may_hold("f", F.lit(77))).first() == (True, False)
