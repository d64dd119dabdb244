"""Seconds that stored queries take to find the texts of a micro-batch that meet them, against a cross join."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.measuring.figures import report, spread, timed
from tests import ROOT
from twofold.features.search.stored_query import EVERY
from twofold.features.search.stored_searches import search_matches, search_terms
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOME = ROOT / ".twofold" / "benchmark-searches"
QUERIES, RATE, SECONDS = 10_000, 1_000, 10
"""Stored queries, and the texts of a micro-batch: so many a second, for so long."""
FEW, MANY = 1_000, 100_000
"""Queries, of which the others than the first ones match nothing."""
CROSSED = 50
"""Texts of the cross join, which takes as long for each of them."""
FASTER, SLOWER = 50.0, 1.5
WORDS, IN_A_TEXT = 20_000, 20


def texts(count: int, chance: random.Random) -> pa.Table:
    """Texts of words of which few are frequent, as in a language: the n-th has a share in proportion to 1/n."""
    shares = [1 / rank for rank in range(1, WORDS + 1)]
    words = chance.choices(range(WORDS), shares, k=count * IN_A_TEXT)
    lines = (" ".join(f"word{n}" for n in words[k : k + IN_A_TEXT]) for k in range(0, len(words), IN_A_TEXT))
    return pa.table({"post_id": range(count), "text": list(lines)})


def queries(count: int, chance: random.Random) -> list[str]:
    """Queries of two words, in a row or not, of alternatives, and without a word."""
    shapes = ("{} {}", '"{} {}"', "({} OR {}) {}", "{} {} NOT {}")
    return [
        shape.format(*(f"word{chance.randrange(WORDS)}" for _ in range(3)))
        for shape in (chance.choice(shapes) for _ in range(count))
    ]


def stored(spark: SparkSession, name: str, rows: DataFrame) -> DataFrame:
    """The rows as files, as a micro-batch finds them."""
    place = str(HOME / name)
    rows.coalesce(1).write.mode("overwrite").parquet(place)
    return spark.read.parquet(place)


def terms_of(spark: SparkSession, name: str, written: Sequence[str]) -> DataFrame:
    searches = spark.createDataFrame(pa.table({"search_id": range(len(written)), "query": list(written)}))
    return stored(spark, name, search_terms(searches))


def find(posts: DataFrame, terms: DataFrame) -> None:
    search_matches(posts, terms, text=["text"]).write.format("noop").mode("overwrite").save()


def seconds(posts: DataFrame, several: dict[str, DataFrame], rounds: int) -> dict[str, list[float]]:
    """Seconds of each table of terms, by turns, after a round that does not count."""
    found: dict[str, list[float]] = {name: [] for name in several}
    for number in range(rounds + 1):
        for name, terms in several.items():
            taken = timed(partial(find, posts, terms))
            if number:
                found[name].append(taken)
    return found


def main() -> int:
    """One core, one process of Python for its functions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of texts, in a micro-batch")
    args = parser.parse_args()
    from pyspark.sql import functions as F

    shutil.rmtree(HOME, ignore_errors=True)
    chance, count = random.Random(1), RATE * args.seconds
    spark = session(Settings(home=HOME, spark_master="local[1]", shuffle_partitions=1), "benchmark")
    try:
        posts = stored(spark, "posts", spark.createDataFrame(texts(count, chance)))
        terms = terms_of(spark, "terms", queries(QUERIES, chance))
        every = stored(spark, "every", terms.dropDuplicates(["search_id"]).withColumn("anchor", F.lit(EVERY)))
        some = queries(FEW, chance)
        others = [f"other{n} word{n % WORDS}" for n in range(MANY - FEW)]
        few, many = terms_of(spark, "few", some), terms_of(spark, "many", [*some, *others])
        matches = search_matches(posts, terms, text=["text"]).count()
        ours = seconds(posts, {"terms": terms}, args.rounds)["terms"]
        crossed = seconds(posts.limit(CROSSED), {"every": every}, 1)["every"]
        grown = seconds(posts, {"few": few, "many": many}, args.rounds)
    finally:
        spark.stop()
        shutil.rmtree(HOME, ignore_errors=True)
    ratio = [crossed[0] / CROSSED / (taken / count) for taken in ours]
    growth = [more / less for less, more in zip(grown["few"], grown["many"], strict=True)]
    figures = {
        "texts": count,
        "matches": matches,
        f"texts/s, {QUERIES:,} queries": spread([count / taken for taken in ours]),
        "times a cross join": spread(ratio),
        f"{FEW:,} queries, s": spread(grown["few"]),
        f"{MANY:,} queries, s": spread(grown["many"]),
        "ratio": spread(growth),
    }
    claims = {
        f"{RATE:,} texts/s on one core with {QUERIES:,} queries (median)": count / spread(ours)["median"] >= RATE,
        f">= {FASTER:.0f} x a cross join (median)": spread(ratio)["median"] >= FASTER,
        f"{MANY:,} queries with the matches of {FEW:,} at most {SLOWER} x (median)": spread(growth)["median"] <= SLOWER,
    }
    return 0 if report("searches", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
