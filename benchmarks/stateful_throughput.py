"""Records per second through each kind of table with state: our stream against the bare Spark query of the function."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring.figures import report, spread, timed
from tests import ROOT
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.streaming.maintain.stateful_query import QueryDrivenStream
from twofold.tables.declare.functions.event_patterns import RECORD as RECORD_TYPE
from twofold.tables.declare.inference import RECORD
from twofold.tables.declare.registry import load
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.open_platform import Platform, ensure_domain

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame

KINDS = {
    "tumbling": "flights.delays_by_hour",
    "hopping": "flights.busiest_routes",
    "join": "flights.flights",
}
START_S = 1_356_998_400
DAYS = 30
GOAL = 0.85


@dataclass(frozen=True)
class Race:
    """One log of departures and their landings, in commits of `batch` records, and two ways from it to a table."""

    platform: Platform
    records: int
    batch: int

    def fill(self) -> None:
        """Write the events, in the order of their time, none late or repeated; one flight of twenty never lands."""
        step_us = DAYS * 86_400_000_000 // self.records
        left = f"timestamp_micros({START_S}000000L + id * {step_us})"
        departed = {
            "flight_id": "concat('UA', id)",
            "kind": "'departed'",
            "carrier": "element_at(array('UA', 'AA', 'DL', 'B6'), cast(id % 4 + 1 AS int))",
            "flight": "cast(id % 9000 AS int)",
            "tail_number": "concat('N', id % 5000)",
            "origin": "element_at(array('EWR', 'JFK', 'LGA'), cast(id % 3 + 1 AS int))",
            "destination": "concat('D', id % 50)",
            "scheduled_at": left,
            "occurred_at": left,
            "delay_min": "cast(id % 200 AS int)",
            "reported_at": left,
        }
        landed = f"{left} + make_dt_interval(0, 0, 60 + cast(id % 60 AS int))"
        arrived = {
            "flight_id": "concat('UA', id)",
            "carrier": departed["carrier"],
            "destination": departed["destination"],
            "arrived_at": landed,
            "delay_min": "cast(id % 150 AS int)",
            "air_time_min": "cast(60 + id % 60 AS int)",
            "reported_at": landed,
        }
        for first in range(0, self.records, self.batch):
            self._commit("flights.departures", departed, first, "true")
            self._commit("flights.arrivals", arrived, first, "id % 20 <> 0")

    def _commit(self, name: str, columns: dict[str, str], first: int, condition: str) -> None:
        provenance = {
            "_partition": "0",
            "_offset": "id",
            "_appended_at": "timestamp_seconds(0)",
            "_late_by_ms": "cast(0 AS bigint)",
            "_replayed": "false",
        }
        rows = self.platform.spark.range(first, min(first + self.batch, self.records), numPartitions=1)
        rows = rows.where(condition).selectExpr(*(f"{sql} AS {c}" for c, sql in {**columns, **provenance}.items()))
        writer = rows.write.format("delta").mode("append").option("userMetadata", '{"cause": "ingest"}')
        writer.save(self.platform.lake.uri(name))

    def ours(self, table: Table) -> float:
        """Seconds that the platform's stream takes, from nothing to all that the log has."""
        lake = self.platform.lake
        shutil.rmtree(lake.uri(table.full_name))
        shutil.rmtree(lake.settings.checkpoints / table.domain, ignore_errors=True)
        ensure_domain(self.platform.spark, lake, self.platform.registry, table.domain)
        stream = QueryDrivenStream(self.platform.spark, lake, self.platform.registry, table)
        return timed(lambda: stream.start(available_now=True).awaitTermination())

    def bare(self, table: Table) -> float:
        """Seconds of the query that one would write for it: its rows appended where they are final, else merged."""
        from delta.tables import DeltaTable

        spark, place = self.platform.spark, self._place(table)
        shutil.rmtree(place.parent, ignore_errors=True)
        inputs = {source.name: self._input(source, table) for source in self.platform.registry.upstream(table)
                  if isinstance(source, Topic)}  # fmt: skip
        rows = table.derive(**inputs)
        spark.createDataFrame([], rows.schema).write.format("delta").save(str(place))
        writer = rows.writeStream.option("checkpointLocation", str(place.with_name("checkpoint")))
        if len(inputs) > 1:
            query = writer.format("delta").outputMode("append").trigger(availableNow=True)
            return timed(lambda: query.start(str(place)).awaitTermination())
        merge = _merging(DeltaTable.forPath(spark, str(place)), table)
        query = writer.outputMode("update").foreachBatch(merge).trigger(availableNow=True)
        return timed(lambda: query.start().awaitTermination())

    def _input(self, topic: Topic, table: Table) -> DataFrame:
        """What is new of a topic, a record that was sent twice counted once."""
        from pyspark.sql import functions as F

        lake = self.platform.lake
        events = (
            self.platform.spark.readStream.format("delta")
            .option("startingVersion", 0)
            .option("maxFilesPerTrigger", lake.settings.max_files)
            .load(lake.uri(topic.full_name))
            .withWatermark(topic.event_time, table.watermark)
            .dropDuplicates(list(topic.same_record))
        )
        frame = events.select(*topic.columns)
        return frame.withColumn(RECORD, F.lit(None).cast(RECORD_TYPE)) if table.lineage_columns else frame

    def differing(self, table: Table) -> int:
        """Rows in which the two results differ, apart from the records that ours name."""
        spark, named = self.platform.spark, table.lineage_columns or ()
        ours = self.platform.lake.frame(spark, table.full_name).drop(*named)
        bare = spark.read.format("delta").load(str(self._place(table))).drop(*named)
        return ours.exceptAll(bare).count() + bare.exceptAll(ours).count()

    def rows(self, table: Table) -> int:
        return self.platform.lake.rows(table.full_name)

    def _place(self, table: Table) -> Path:
        return self.platform.lake.settings.home / "bare" / table.name / "table"


def _merging(target: DeltaTable, table: Table) -> Callable[[DataFrame, int], None]:
    same = " AND ".join(f"t.{column} = s.{column}" for column in table.primary_key)

    def merge(rows: DataFrame, _: int) -> None:
        merger = target.alias("t").merge(rows.alias("s"), same)
        merger.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return merge


def measured(race: Race, table: Table, rounds: int) -> tuple[dict[str, list[float]], bool]:
    """Records per second of both, in turns, after a round that does not count; whether the results were equal."""
    sources = race.platform.registry.upstream(table)
    records = sum(race.platform.lake.rows(source.full_name) for source in sources)
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    equal = True
    for number in range(rounds + 1):
        turns = [("bare", race.bare), ("ours", race.ours)]
        for name, way in turns if number % 2 else reversed(turns):
            seconds = way(table)
            if number:
                rates[name].append(records / seconds)
        equal = equal and race.rows(table) > 0 and race.differing(table) == 0
    rates["ratio"] = [ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True)]
    return rates, equal


def main() -> int:
    """Race each kind, in large micro-batches as after a pause, and in small ones as in live operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--batches", type=int, default=4, help="micro-batches in which each kind takes all records")
    parser.add_argument("--small", type=int, default=5_000, help="records of a small micro-batch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", choices=[*KINDS], default=[*KINDS])
    args = parser.parse_args()
    figures: dict[str, object] = {}
    claims: dict[str, bool] = {}
    sizes = {"large": (args.records, args.records // args.batches), "small": (args.small * args.batches, args.small)}
    home = ROOT / ".twofold" / "benchmark-kinds"
    registry = load()
    spark = session(Settings(home=home, driver_memory="4g"), "benchmark")
    try:
        for size, (records, batch) in sizes.items():
            settings = Settings(home=home / size, max_files=1)
            shutil.rmtree(settings.home, ignore_errors=True)
            lake = Lake(settings)
            ensure_domain(spark, lake, registry, "flights")
            race = Race(Platform(spark, lake, registry), records, batch)
            race.fill()
            for kind in args.kinds:
                rates, equal = measured(race, registry.find_table(KINDS[kind]), args.rounds)
                case = f"{kind}, micro-batches of {batch:,}"
                print({case: {name: [round(v, 2) for v in values] for name, values in rates.items()}}, flush=True)
                figures |= {f"{case}: {name}": spread(values) for name, values in rates.items()}
                claims[f"{case}: results are equal"] = equal
                claims[f"{case}: >= {GOAL} x bare (median)"] = spread(rates["ratio"])["median"] >= GOAL
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    return 0 if report("kinds", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
