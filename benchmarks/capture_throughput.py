"""Changes of a database per second, into the log and into a table, against a stream that merges each micro-batch."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.measuring.benchmark_platform import free_ports, platform
from benchmarks.measuring.figures import percentile, report, spread, timed
from twofold.features.capture import debezium_connector, kafka_connect
from twofold.features.capture.captured_topic import captures
from twofold.infra.delta.lake import Lake
from twofold.infra.duckdb_session import query
from twofold.infra.kafka import broker
from twofold.infra.kafka.topic_admin import ensure_topics, offsets
from twofold.infra.postgres import database_connection, postgres_server
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.streaming.driver import table_query
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.events.topic_specs import specs
from twofold.tables.refresh.open_platform import Platform, ensure_domain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

FILES = {
    "accounts.py": '''\
"""Changes of the accounts."""
from twofold import changes_of

TOPIC = changes_of(
    "public.accounts",
    columns={"id": "long", "owner": "string", "branch": "int", "balance": "decimal(20,4)", "touched": "timestamp"},
    primary_key=["id"],
)
''',
    "accounts_now.py": '''\
"""The accounts, as the database has them."""
from twofold import latest_rows, table


@table(primary_key=["id"], recompute_by=["id"])
def accounts_now(accounts):
    return latest_rows(accounts, key=["id"], columns=["owner", "branch", "balance", "touched"])
''',
}
# Of twenty changes one inserts, one deletes, the others update; ten of them are one transaction.
SCHEMA = """
CREATE TABLE accounts (id bigint PRIMARY KEY, owner text, branch int, balance numeric(20,4), touched timestamptz);
CREATE PROCEDURE change(transactions int, rows bigint, first bigint, pause_s double precision) LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz := clock_timestamp();
    chosen bigint;
BEGIN
    FOR n IN 1..transactions LOOP
        FOR k IN 1..9 LOOP
            chosen := 1 + floor(random() * rows);
            UPDATE accounts SET balance = balance + 1, touched = clock_timestamp() WHERE id = chosen;
        END LOOP;
        IF n % 2 = 0 THEN
            INSERT INTO accounts VALUES (first + n, 'new ' || n, n % 100, n, clock_timestamp());
        ELSE
            chosen := 1 + floor(random() * rows);
            DELETE FROM accounts WHERE id = chosen;
        END IF;
        COMMIT;
        PERFORM pg_sleep(greatest(0, n * pause_s - extract(epoch FROM clock_timestamp() - began)));
    END LOOP;
END $$;
"""
ENVELOPE = (
    "op string, source struct<lsn: bigint>, before struct<id: bigint>, after struct<id: bigint, owner: string, "
    "branch: int, balance: string, touched: string>"
)
GOAL = 3.0
RATE = 3_000
SETTLED_S = 10.0  # a table that was not changed for so long shows all that there is


@dataclass
class Race:
    """A captured database, and two ways from its topic to a table that equals it."""

    spark: SparkSession
    settings: Settings
    registry: Registry

    def __post_init__(self) -> None:
        self.lake = Lake(replace(self.settings, home=self.settings.home / "ours"))
        ensure_domain(self.spark, self.lake, self.registry, "bank")
        self.merged = self.settings.home / "merged"
        columns = "id bigint, owner string, branch int, balance decimal(20,4), touched timestamp"
        self.spark.createDataFrame([], columns).write.format("delta").save(str(self.merged / "table"))

    def ours(self) -> None:
        """Ingest, then the table, to the end of the topic."""
        Ingest(self.spark, self.lake, self.registry, "bank").start(available_now=True).awaitTermination()
        table = self.registry.find_table("accounts_now")
        table_query(Platform(self.spark, self.lake, self.registry), table).start(available_now=True).awaitTermination()

    @contextmanager
    def following(self) -> Iterator[None]:
        """Ingest and the table run as in a driver, until the table shows all that was changed in the block."""
        table = self.registry.find_table("accounts_now")
        ingest = Ingest(self.spark, self.lake, self.registry, "bank").start(available_now=False)
        follow = table_query(Platform(self.spark, self.lake, self.registry), table).start(available_now=False)
        try:
            yield
            version, since = -1, time.monotonic()
            while time.monotonic() - since < SETTLED_S:
                if (now := self.lake.version(table.full_name)) != version:
                    version, since = now, time.monotonic()
                time.sleep(0.2)
        finally:
            follow.stop()
            ingest.stop()

    def visible(self, after: int) -> list[float]:
        """Of the rows that the table shows since that version, milliseconds from their change to the table's commit."""
        columns = ["touched", "_change_type", "_commit_timestamp"]
        feed = self.lake.open("bank.accounts_now").load_cdf(starting_version=after + 1)
        sql = f"""
            SELECT epoch_ms(_commit_timestamp) - epoch_ms(touched) AS ms FROM (SELECT {", ".join(columns)} FROM feed)
            WHERE _change_type IN ('insert', 'update_postimage') ORDER BY touched
        """
        return [float(ms) for ms in query(sql, feed=pa.table(feed))["ms"].to_pylist()]

    def merge(self) -> None:
        """What anybody would write first: the newest change of each key of a micro-batch, merged into the table."""
        (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.settings.bootstrap_servers)
            .option("subscribe", "bank.accounts")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.settings.max_offsets)
            .load()
            .writeStream.option("checkpointLocation", str(self.merged / "checkpoint"))
            .foreachBatch(self._merge)
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    def _merge(self, records: DataFrame, _: int) -> None:
        from delta.tables import DeltaTable
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        changes = records.select(F.from_json(F.col("value").cast("string"), ENVELOPE).alias("c"), "offset")
        keyed = changes.where("c.op <> 'm'").select(
            F.coalesce("c.after.id", "c.before.id").alias("id"),
            F.col("c.op").alias("op"),
            "c.after.owner",
            "c.after.branch",
            F.col("c.after.balance").cast("decimal(20,4)").alias("balance"),
            F.col("c.after.touched").cast("timestamp").alias("touched"),
            "offset",
        )
        newest = Window.partitionBy("id").orderBy(F.col("offset").desc())
        last = keyed.withColumn("rank", F.row_number().over(newest)).where("rank = 1")
        columns: dict[str, str | Column] = {
            name: f"s.{name}" for name in ("id", "owner", "branch", "balance", "touched")
        }
        target = DeltaTable.forPath(self.spark, str(self.merged / "table")).alias("t")
        (
            target.merge(last.alias("s"), "t.id = s.id")
            .whenMatchedDelete("s.op = 'd'")
            .whenMatchedUpdate(set=columns)
            .whenNotMatchedInsert("s.op <> 'd'", values=columns)
            .execute()
        )

    def written_bytes(self, way: str) -> int:
        """Bytes of data files that commits of the table added, in all."""
        table = Path(self.lake.uri("bank.accounts_now")) if way == "ours" else self.merged / "table"
        lines = [line for log in table.glob("_delta_log/*.json") for line in log.read_text().splitlines()]
        return sum(json.loads(line)["add"]["size"] for line in lines if line.startswith('{"add"'))

    def totals(self) -> tuple[object, ...]:
        """Rows and the sum of their balances in our table."""
        rows = self.spark.read.format("delta").load(self.lake.uri("bank.accounts_now"))
        [found] = rows.selectExpr("count(*)", "sum(balance)").collect()
        return tuple(found)

    def differing(self) -> int:
        """Rows in which a table differs from the database's."""
        expected = set(database_connection.query(self.settings, "SELECT id, owner, branch, balance FROM accounts"))
        found = 0
        for uri in (self.lake.uri("bank.accounts_now"), str(self.merged / "table")):
            rows = self.spark.read.format("delta").load(uri).select("id", "owner", "branch", "balance").collect()
            found += len({tuple(row) for row in rows} ^ expected)
        return found


@contextmanager
def captured(folder: Path, broker_settings: Settings) -> Iterator[tuple[Settings, Registry]]:
    """The broker's platform with a database and Kafka Connect."""
    database, connect = free_ports(2)
    settings = replace(broker_settings, database_port=database, connect_port=connect)
    for name, text in FILES.items():
        (folder / "bank" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "bank" / name).write_text(text)
    registry = load(folder)
    postgres_server.prepare(settings)
    kafka_connect.prepare(settings)
    programs = [broker.program(settings), postgres_server.program(settings), kafka_connect.program(settings)]
    supervisor.start(settings, programs)
    ensure_topics(settings, specs(registry))
    postgres_server.wait_ready(settings)
    kafka_connect.wait_ready(settings)
    yield settings, registry


def changed(settings: Settings, rows: int, changes: int, first: int, rate: float = 0.0) -> tuple[int, int]:
    """Make about so many changes, and say which offsets the topic has them at, the last one excluded."""
    start = wait_steady(settings)
    change(settings, rows, changes, first, rate)
    return start, wait_steady(settings)


def change(settings: Settings, rows: int, changes: int, first: int, rate: float = 0.0) -> None:
    """Make about so many changes, as fast as can be, or at a rate."""
    call = f"CALL change({changes // 10}, {rows}, {first}, {10 / rate if rate else 0});"
    database_connection.query(settings, call, timeout_s=3_600)


def catch_up(settings: Settings, rows: int, seconds: int, first: int) -> float:
    """Seconds from the start of Kafka Connect, which was stopped while the database changed, until the log has all.

    The changes of so many seconds are made as fast as can be.
    """
    wait_steady(settings)
    supervisor.stop_program(settings, kafka_connect.NAME)
    change(settings, rows, seconds * RATE, first)
    began = time.monotonic()
    supervisor.start_program(settings, kafka_connect.NAME)
    wait_steady(settings)
    return time.monotonic() - began


def insert_at_once(settings: Settings, rows: int, first: int) -> float:
    """Seconds until the log has so many new rows of one transaction, from its commit on."""
    wait_steady(settings)
    values = f"SELECT n, 'new ' || n, n % 100, n, now() FROM generate_series({first + 1}, {first + rows}) n"
    database_connection.query(settings, f"INSERT INTO accounts {values};", timeout_s=3_600)
    return timed(lambda: wait_steady(settings))


def wait_steady(settings: Settings) -> int:
    """Return the topic's end once the connector has all of the database's log, and it no longer grows."""
    [(position,)] = database_connection.query(settings, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
    end = -1
    while True:
        [(confirmed,)] = database_connection.query(
            settings, "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots"
        )
        now = offsets(settings, ["bank.accounts"])["bank.accounts"][0].latest
        if confirmed >= position and now == end:
            return now
        end = now
        time.sleep(0.2)


def logged(lake: Lake, span: tuple[int, int]) -> tuple[list[float], float]:
    """Of the changes at these offsets, milliseconds from commit to the broker's append, in order; and changes/s."""
    rows = lake.open("bank.accounts").scan(columns=["cdc_at", "cdc_op", "_appended_at", "_offset"])
    sql = """
        SELECT epoch_ms(_appended_at) AS at, epoch_ms(cdc_at) AS made FROM rows
        WHERE _offset >= ? AND _offset < ? AND cdc_op <> 'mark' ORDER BY _offset
    """
    found = query(sql, span, rows=rows).to_pydict()
    lags = [float(at - made) for at, made in zip(found["at"], found["made"], strict=True)]
    return lags, 1_000 * len(lags) / (max(found["at"]) - min(found["made"]))


def main() -> int:
    """A snapshot, changes as fast as they can be made, changes at a steady rate; then the two ways in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--changes", type=int, default=20_000, help="of a round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steady", type=int, default=30, help=f"seconds with {RATE:,} changes a second")
    parser.add_argument(
        "--outage",
        type=int,
        default=600,
        help=f"seconds of {RATE:,} changes a second that are made while Kafka Connect is stopped",
    )
    parser.add_argument("--transaction", type=int, default=1_000_000, help="rows that one transaction inserts")
    args = parser.parse_args()
    with ExitStack() as stack:
        broker_settings = stack.enter_context(platform("capture"))
        settings, registry = stack.enter_context(captured(broker_settings.home / "tables", broker_settings))
        [capture] = captures(registry)
        rows = f"SELECT n, 'owner ' || n, n % 100, n, now() FROM generate_series(1, {args.rows}) n"
        database_connection.query(settings, f"{SCHEMA}\nINSERT INTO accounts {rows};", timeout_s=600)

        def take_snapshot() -> None:
            debezium_connector.ensure(settings, capture)
            debezium_connector.wait_snapshot(settings, capture, 3_600)

        snapshot_s = timed(take_snapshot)
        spark = session(settings, "capture")
        race = Race(spark, settings, registry)
        first = {"ours": timed(race.ours), "merge": timed(race.merge)}
        before = {way: race.written_bytes(way) for way in first}
        key, captured_rates = args.rows, []
        seconds: dict[str, list[float]] = {"ours": [], "merge": []}
        counts: list[int] = []
        for number in range(args.rounds + 1):
            span = changed(settings, args.rows, args.changes, key)
            count, key = span[1] - span[0], key + args.changes
            ways = [("ours", race.ours), ("merge", race.merge)]
            drained = {name: timed(way) for name, way in (ways if number % 2 else reversed(ways))}
            print(f"round {number}: {count:,} changes, {drained}", flush=True)
            if number:
                captured_rates.append(logged(race.lake, span)[1])
                counts.append(count)
                for way, way_s in drained.items():
                    seconds[way].append(way_s)
            else:
                before = {way: race.written_bytes(way) for way in first}
        rewritten = {way: (race.written_bytes(way) - before[way]) / sum(counts) for way in first}
        differing = race.differing()
        version = race.lake.version("bank.accounts_now")
        with race.following():
            steady = changed(settings, args.rows, args.steady * RATE, key, RATE)
        lags, rate = logged(race.lake, steady)
        shown = race.visible(version)
        behind_s = catch_up(settings, args.rows, args.outage, key + args.steady * RATE)
        shown_s = timed(race.ours)
        key += args.steady * RATE + args.outage * RATE
        at_once_s = {"log has all": insert_at_once(settings, args.transaction, key)}
        print(f"one transaction of {args.transaction:,} rows: {at_once_s}", flush=True)
        at_once_s["then table has all"] = timed(race.ours)
        [totals] = database_connection.query(settings, "SELECT count(*), sum(balance) FROM accounts")
        is_whole = race.totals() == totals
        spark.stop()
    ratios = [merge / ours for ours, merge in zip(seconds["ours"], seconds["merge"], strict=True)]
    figures = {
        "rows of the table": args.rows,
        "snapshot into the log, rows/s": args.rows / snapshot_s,
        "snapshot into the table, rows/s": {way: args.rows / way_s for way, way_s in first.items()},
        "changes of a round": mean(counts),
        "made as fast as can be, until in the log, changes/s": spread(captured_rates),
        "changes into the table, changes/s": {
            way: mean(counts) / spread(ways_s)["median"] for way, ways_s in seconds.items()
        },
        "ratio": spread(ratios),
        "bytes of the table written per change": rewritten,
        f"commit to log at {rate:,.0f} changes/s, ms": {
            "p50": percentile(lags, 0.5),
            "p99": percentile(lags, 0.99),
            "first tenth p50": percentile(lags[: len(lags) // 10], 0.5),
            "last tenth p50": percentile(lags[-len(lags) // 10 :], 0.5),
        },
        f"commit to table at {rate:,.0f} changes/s, ms": {
            "p50": percentile(shown, 0.5),
            "p99": percentile(shown, 0.99),
            "last tenth p50": percentile(shown[-len(shown) // 10 :], 0.5),
        },
        f"after {args.outage} s without Kafka Connect, s": {"log has all": behind_s, "then table has all": shown_s},
        f"one transaction of {args.transaction:,} rows, s after its commit": at_once_s,
        "rows that differ from the database": differing,
    }
    claims = {
        "both equal the database": differing == 0,
        "the table has one large transaction as the database has it": is_whole,
        f"changes into the table >= {GOAL:g} x a merge (median)": spread(ratios)["median"] >= GOAL,
        f"keeps up with {RATE:,} changes/s": rate > 0.9 * RATE and percentile(lags[-len(lags) // 10 :], 0.5) < 2_000,
    }
    return 0 if report("capture", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
