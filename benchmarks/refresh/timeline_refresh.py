"""Seconds that home timelines take to follow posts and follows, against recomputation; what a popular author costs."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.measuring.figures import report, spread, timed
from tests import ROOT
from twofold.infra.delta.compaction import compact
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.streaming.maintain.change_driven import ChangeDrivenStream
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.derived_rows import derive_over
from twofold.tables.refresh.open_platform import ensure_domain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = ("post_events", "follow_events")
TABLES = ("posts", "follows", "popular_authors", "timelines")
START = datetime(2026, 1, 1, tzinfo=UTC)
POPULAR, MANY, POSTS = 100_000, 10_000, 20
"""Followers of a popular author, the most that an author has whose posts are copied, and posts of either."""
TOUCHED, GOAL = 20, 20.0
"""Posts, and as many follows, of a micro-batch."""


@dataclass
class Shop:
    """A log of posts and follows, and the tables that follow it.

    Attributes:
        most_followers: of an author whose posts are copied.
    """

    spark: SparkSession
    settings: Settings
    most_followers: int
    _numbers: Iterator[int] = field(default_factory=lambda: count())
    _next: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))

    def __post_init__(self) -> None:
        declared = load()
        self.registry = Registry(
            {f"shop.{name}": declared.find_topic(f"shop.{name}") for name in TOPICS},
            {f"shop.{name}": declared.find_table(f"shop.{name}") for name in TABLES},
        )
        popular = self.registry.find_table("shop.popular_authors").derive
        popular.__globals__["MOST_FOLLOWERS"] = self.most_followers
        self.lake = Lake(self.settings)
        ensure_domain(self.spark, self.lake, self.registry, "shop")
        self._streams = [
            ChangeDrivenStream(self.spark, self.lake, self.registry, self.registry.find_table(f"shop.{name}"))
            for name in TABLES
        ]

    def post(self, authors: Sequence[str]) -> None:
        """A post of each author, each a second after the one before."""
        rows = len(authors)
        numbers = [next(self._numbers) for _ in range(rows)]
        columns: dict[str, Sequence[object]] = {
            "post_id": [f"m{number:08}" for number in numbers],
            "author": list(authors),
            "kind": ["posted"] * rows,
            "version": [1] * rows,
            "product": ["a lamp"] * rows,
            "text": [f"what is to be said in post {number} about a lamp" for number in numbers],
            "happened_at": [START + timedelta(seconds=number) for number in numbers],
        }
        self._append("post_events", columns)

    def follow(self, followers: Sequence[str], authors: Sequence[str]) -> None:
        """Each follower begins to follow the author at the same place."""
        rows = len(followers)
        columns: dict[str, Sequence[object]] = {
            "follower": list(followers),
            "author": list(authors),
            "kind": ["followed"] * rows,
            "happened_at": [START] * rows,
        }
        self._append("follow_events", columns)

    def refresh(self) -> dict[str, float]:
        """Table -> seconds that it takes to follow what is new."""
        return {stream.table.name: timed(partial(_follow, stream)) for stream in self._streams}

    def tidy(self) -> None:
        """What the stream does after a hundred commits."""
        for table in self.registry.tables.values():
            compact(self.lake, table.full_name, table.event_time)

    def rows(self) -> int:
        return self.lake.rows("shop.timelines")

    def recompute(self) -> float:
        """Seconds to compute all timelines of the posts and follows and to overwrite a table with them."""
        place = str(self.settings.home / "recomputed")
        table = self.registry.find_table("shop.timelines")

        def overwrite() -> None:
            rows = derive_over(self.registry, table, lambda source: self.lake.frame(self.spark, source.full_name))
            rows.write.format("delta").mode("overwrite").save(place)

        return timed(overwrite)

    def is_right(self) -> bool:
        """Whether the timelines equal what was recomputed last."""
        place = str(self.settings.home / "recomputed")
        live, full = self.lake.frame(self.spark, "shop.timelines"), self.spark.read.format("delta").load(place)
        return live.exceptAll(full).isEmpty() and full.exceptAll(live).isEmpty()

    def _append(self, name: str, columns: Mapping[str, Sequence[object]]) -> None:
        topic, first, rows = f"shop.{name}", self._next[name], len(columns["author"])
        self._next[name] += rows
        schema = pa.schema(self.lake.open(topic).schema())
        provenance: dict[str, Sequence[object]] = {
            "_partition": [0] * rows,
            "_offset": range(first, first + rows),
            "_appended_at": [START] * rows,
            "_late_by_ms": [0] * rows,
            "_replayed": [False] * rows,
        }
        known = {**columns, **provenance}
        filled = pa.table([pa.array(known.get(f.name, [None] * rows), f.type) for f in schema], schema=schema)
        tag = CommitTag(app="ingest", version=self._next[name], info={"cause": "ingest"})
        Writer(self.lake, topic).append(filled, tag)


def _follow(stream: ChangeDrivenStream) -> None:
    stream.start(available_now=True).awaitTermination()


def race(
    shop: Shop, authors: int, followers: int, posts: int, rounds: int
) -> tuple[dict[str, object], dict[str, bool]]:
    """Refresh against recomputation, by turns, after a round that does not count."""
    names = [f"a{n:05}" for n in range(authors)]
    pairs = [(f"c{n * 7 + k:06}", name) for n, name in enumerate(names) for k in range(followers)]
    shop.follow([follower for follower, _ in pairs], [author for _, author in pairs])
    shop.post(names * posts)
    shop.refresh()
    shop.tidy()
    seconds: dict[str, list[float]] = {name: [] for name in (*TABLES, "recomputed", "ratio")}
    written = []
    for number in range(rounds + 1):
        before, turn = shop.rows(), [names[(number * 100 + n) % authors] for n in range(2 * TOUCHED)]
        shop.post(turn[:TOUCHED])
        shop.follow([f"n{number:03}{n:03}" for n in range(TOUCHED)], turn[TOUCHED:])
        taken = shop.refresh()
        recomputed = shop.recompute()
        print(number, taken, recomputed, flush=True)
        if number:
            for name, value in taken.items():
                seconds[name].append(value)
            seconds["recomputed"].append(recomputed)
            seconds["ratio"].append(recomputed / taken["timelines"])
            written.append(shop.rows() - before)
    figures: dict[str, object] = {"timelines, rows": shop.rows(), "written by a micro-batch, rows": spread(written)}
    figures |= {f"{name}, s" if name != "ratio" else "times faster": spread(found) for name, found in seconds.items()}
    claims = {
        "what is refreshed equals what is recomputed": shop.is_right(),
        f">= {GOAL} x a full recomputation (median)": spread(seconds["ratio"])["median"] >= GOAL,
    }
    return figures, claims


def popular(shop: Shop, rounds: int) -> dict[str, object]:
    """Rows and seconds of a post by the most popular author, and by one who has as many followers as are copied to."""
    fans = [f"c{n:06}" for n in range(POPULAR)]
    shop.follow(fans, ["star"] * POPULAR)
    shop.follow(fans[:MANY], ["edge"] * MANY)
    shop.post(["star", "edge"] * POSTS)
    shop.refresh()
    shop.tidy()
    figures: dict[str, object] = {}
    for author in ("star", "edge"):
        seconds = []
        for _ in range(rounds + 1):
            before = shop.rows()
            shop.post([author])
            seconds.append(shop.refresh()["timelines"])
        figures[f"post of {author}, rows"] = shop.rows() - before
        figures[f"post of {author}, s"] = spread(seconds[1:])
    before = shop.rows()
    shop.follow(["c999999"], ["edge"])
    figures["edge becomes popular, s"] = sum(shop.refresh().values())
    figures["edge becomes popular, rows"] = shop.rows() - before
    return figures


def main() -> int:
    """Both parts, each in homes of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--authors", type=int, default=2_000)
    parser.add_argument("--followers", type=int, default=100, help="of each author")
    parser.add_argument("--posts", type=int, default=50, help="of each author")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    home = ROOT / ".twofold" / "benchmark-timelines"
    shutil.rmtree(home, ignore_errors=True)
    spark = session(Settings(home=home, driver_memory="4g"), "benchmark")
    try:
        shop = Shop(spark, Settings(home=home / "many"), MANY)
        figures, claims = race(shop, args.authors, args.followers, args.posts, args.rounds)
        for limit, most in {"with the limit": MANY, "without": POPULAR + 1}.items():
            found = popular(Shop(spark, Settings(home=home / limit.replace(" ", "-")), most), args.rounds)
            figures |= {f"{limit}: {name}": value for name, value in found.items()}
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    claims["no row is written for a post of a popular author"] = figures["with the limit: post of star, rows"] == 0
    return 0 if report("timelines", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
