"""Seconds of a reconcile of a long history, against three obvious ways to recompute it, and of a short history."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring.figures import report, spread, timed
from tests import ROOT
from twofold.batch.reconcile import Reconcile
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.tables.declare.registry import load
from twofold.tables.declare.table import Table
from twofold.tables.refresh.derived_rows import derive
from twofold.tables.refresh.open_platform import Platform, ensure_domain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = '''"""Measurements of sensors."""
from twofold import Topic

TOPIC = Topic(
    schema={"sensor": "string", "at": "timestamp", "value": "int"},
    event_time="at",
    message_key="sensor",
    dedup_keys=["sensor"],
)
'''
TABLE = '''"""Measurements by sensor and hour."""
from twofold import F, table


@table(
    primary_key=["sensor", "hour"],
    event_time="hour",
    watermark="2 hours",
    closes_at="closes_at",
    recompute_by=["sensor"],
    depends_within="1 hour",
)
def by_hour(measured):
    """One row per sensor and hour: how many, and their sum."""
    return measured.groupBy("sensor", F.window("at", "1 hour")).agg(
        F.count("*").alias("measurements"), F.sum("value").alias("total")
    ).select("sensor", F.col("window.start").alias("hour"), F.col("window.end").alias("closes_at"),
             "measurements", "total")
'''
DAY_S = 86_400
START_S = 1_700_006_400  # midnight
SENSORS = 1_000
GROWTH = 1.10
OWN, DAYS_ANEW, ALL_ANEW, EXCEPT_ALL = "reconcile", "overwrite of days", "overwrite of all", "exceptAll"


@dataclass(frozen=True)
class History:
    """Days of `new` events in files by time, their table, a first reconcile; then one more such day, some of it late.

    The late ones are of distinct sensors and hours, of the last `late_days` full days of the history.
    """

    platform: Platform
    table: Table
    days: int
    new: int
    late: int

    @property
    def events(self) -> int:
        """Of the history before it goes on."""
        return self.days * self.new

    @property
    def _spark(self) -> SparkSession:
        return self.platform.spark

    def uri(self, name: str) -> str:
        return self.platform.lake.uri(f"plant.{name}")

    def make(self) -> None:
        """Write the history and its table, as a stream would have left them."""
        step_us = self.days * DAY_S * 1_000_000 // self.events
        at = f"timestamp_micros({START_S}000000L + id * {step_us})"
        files = max(8, self.events // 250_000)
        self._append(self._spark.range(self.events, numPartitions=files), at, "0L")
        rows = self._derived(self._read("measured")).repartitionByRange(max(2, self.days // 6), "hour")
        rows.write.format("delta").mode("append").save(self.uri("by_hour"))
        Reconcile(self.platform, self.table).run(verify=False)

    def go_on(self, late_days: int, turn: int) -> None:
        """The next events, on time, with their rows, and late ones that the stream would have dropped."""
        first = START_S + (self.days + turn) * DAY_S
        now = self._spark.range(self.new - self.late, numPartitions=4)
        step_us = DAY_S * 1_000_000 // self.new
        at = f"timestamp_micros({first}000000L + id * {step_us})"
        self._append(now, at, "0L")
        fresh = self._read("measured").where(f"at >= timestamp_seconds({first})")
        self._derived(fresh).coalesce(2).write.format("delta").mode("append").save(self.uri("by_hour"))
        late = self._spark.range(self.late, numPartitions=1)
        span_s = late_days * DAY_S
        past_s = START_S + (self.days - late_days) * DAY_S
        past = f"timestamp_micros(({past_s}L + (id * {span_s // self.late} + {turn * 7}) % {span_s}) * 1000000 + 1)"
        self._append(late, past, f"{30 * DAY_S * 1_000}L")

    def _append(self, ids: DataFrame, at: str, late_by_ms: str) -> None:
        rows = ids.selectExpr(
            f"concat('s', id * 7 % {SENSORS}) AS sensor",
            f"{at} AS at",
            "cast(id % 97 AS int) AS value",
            "0 AS _partition",
            "id AS _offset",
            "timestamp_seconds(0) AS _appended_at",
            f"{late_by_ms} AS _late_by_ms",
            "false AS _replayed",
        )
        columns = self._read("measured").columns
        metadata = '{"cause": "ingest"}'
        writer = rows.select(columns).write.format("delta").mode("append").option("userMetadata", metadata)
        writer.save(self.uri("measured"))

    def reconcile(self) -> int:
        """Rows corrected."""
        return sum(o.changed for o in Reconcile(self.platform, self.table).run(verify=False))

    def overwrite_all(self) -> None:
        """The table computed again from every event, into a copy."""
        self._overwrite(self._derived(self._read("measured")))

    def overwrite_days(self) -> None:
        """The days of the late events found and computed again, into a copy."""
        from pyspark.sql import functions as F

        events = self._read("measured")
        span = events.where("_late_by_ms > 0").select(F.min("at"), F.max("at")).first()
        first, last = (f"DATE '{at:%Y-%m-%d}'" for at in span or ())
        rows = self._derived(events.where(f"at >= {first} AND at < {last} + INTERVAL 1 DAY"))
        condition = f"hour >= {first} AND hour < {last} + INTERVAL 1 DAY"
        rows.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(self.uri("copy"))

    def except_all(self) -> int:
        """Rows that differ, by recomputing everything and `exceptAll` in both directions."""
        should, live = self._derived(self._read("measured")), self._read("copy")
        return should.exceptAll(live).count() + live.exceptAll(should).count()

    def copy(self) -> None:
        """A copy of the table for the others to overwrite."""
        shutil.rmtree(self.uri("copy"), ignore_errors=True)
        self._read("by_hour").repartitionByRange(16, "hour").write.format("delta").save(self.uri("copy"))

    def differing(self) -> int:
        """Rows in which the table and the overwritten copy differ."""
        one, other = self._read("by_hour"), self._read("copy")
        return one.exceptAll(other).count() + other.exceptAll(one).count()

    def _overwrite(self, rows: DataFrame) -> None:
        rows.write.format("delta").mode("overwrite").save(self.uri("copy"))

    def _derived(self, events: DataFrame) -> DataFrame:
        return derive(self.table, {"measured": events.select("sensor", "at", "value")})

    def _read(self, name: str) -> DataFrame:
        return self._spark.read.format("delta").load(self.uri(name))


def declared(home: Path) -> Path:
    """A folder with the domain `plant`."""
    folder = home / "declared" / "plant"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text('"""A plant."""\n')
    (folder / "measured.py").write_text(TOPIC)
    (folder / "by_hour.py").write_text(TABLE)
    return folder.parent


def beside_others(history: History, turns: Iterator[int], late_days: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of a reconcile and of three other ways to the same rows, by turns.

    Raises:
        RuntimeError: their results differ.
    """
    taken: dict[str, list[float]] = {OWN: [], DAYS_ANEW: [], ALL_ANEW: [], EXCEPT_ALL: []}
    for _ in range(rounds):
        history.go_on(late_days, next(turns))
        history.copy()
        taken[OWN].append(timed(history.reconcile))
        taken[EXCEPT_ALL].append(timed(history.except_all))
        for way, overwrite in ((DAYS_ANEW, history.overwrite_days), (ALL_ANEW, history.overwrite_all)):
            taken[way].append(timed(overwrite))
            if differing := history.differing():
                raise RuntimeError(f"{differing} rows of the reconciled table differ after an {way}")
        print({way: round(seconds[-1], 2) for way, seconds in taken.items()}, flush=True)
    return taken


def beside_a_short(history: History, short: History, turns: Iterator[int], rounds: int) -> dict[str, list[float]]:
    """Seconds of a reconcile in a long and in a short history, by turns, after a round that does not count."""
    taken: dict[str, list[float]] = {OWN: [], "short": []}
    for number, turn in zip(range(1 + rounds), turns, strict=False):
        for one, seconds in zip((history, short), taken.values(), strict=True):
            one.go_on(3, turn)
            seconds.append(timed(one.reconcile))
        print(f"growth {number}:", {one: round(seconds[-1], 2) for one, seconds in taken.items()}, flush=True)
    return {one: seconds[1:] for one, seconds in taken.items()}


def main() -> int:
    """Measure over a history of so many days, and over one of a tenth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=100)
    parser.add_argument("--new", type=int, default=1_000_000, help="events of each day")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    home = ROOT / ".twofold" / "benchmark-reconcile"
    shutil.rmtree(home, ignore_errors=True)
    registry = load(declared(home))
    spark = session(Settings(home=home, driver_memory="8g"), "benchmark")
    figures: dict[str, object] = {"events": args.days * args.new, "new": args.new, "late": args.new // 1000}
    claims: dict[str, bool] = {}

    def made(days: int) -> History:
        lake = Lake(Settings(home=home / str(days)))
        ensure_domain(spark, lake, registry, "plant")
        platform, table = Platform(spark, lake, registry), registry.find_table("by_hour")
        history = History(platform, table, days=days, new=args.new, late=args.new // 1000)
        print(f"history of {history.events:,} events made in {timed(history.make):.0f} s", flush=True)
        return history

    try:
        history, short, turns = made(args.days), made(args.days // 10), count()
        # First, since a history has as many commits behind it as the other only before it went on alone.
        long_s, short_s = beside_a_short(history, short, turns, 2 * args.rounds).values()
        figures |= {"growth, long history, s": spread(long_s), "growth, a tenth of it, s": spread(short_s)}
        growth = spread(long_s)["median"] / spread(short_s)["median"]
        figures["growth, ratio"] = growth
        claims[f"ten times the history costs at most {GROWTH} x"] = growth <= GROWTH
        for late_days, least in ((3, 1.0), (30, 3.0)):
            taken = beside_others(history, turns, late_days, args.rounds)
            figures |= {f"{late_days} days: {way}, s": spread(seconds) for way, seconds in taken.items()}
            for way, times in ((DAYS_ANEW, least), (ALL_ANEW, 6.0), (EXCEPT_ALL, 15.0)):
                ratio = spread(taken[way])["median"] / spread(taken[OWN])["median"]
                figures[f"{late_days} days: times faster than {way}"] = ratio
                claims[f"{late_days} days: >= {times} x faster than {way}"] = ratio >= times
        idle = [timed(history.reconcile) for _ in range(5)]
        figures["nothing to do, s"] = spread(idle)
        claims["nothing to do < 0.5 s"] = spread(idle)["median"] < 0.5
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    return 0 if report("reconcile", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
