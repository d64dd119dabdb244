"""Scopes of a live table are brought to what its function says, and to nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.tables.declared import a_topic, bound_as
from twofold.infra.delta.delta_writer import CommitTag, Writer, Written
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration, QualityFailed
from twofold.infra.instants import Interval, epoch_ms
from twofold.infra.project.settings import Engine, Settings
from twofold.quality.rules import between, unique
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET, PARTITION, REPLAYED
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.refresh.events.record_decoder import events_schema
from twofold.tables.refresh.refresh import Refresher
from twofold.tables.refresh.scope import Scope, everything

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TOPIC = a_topic()
TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
Row = tuple[Any, ...]


def hours(readings: DataFrame) -> DataFrame:
    """One row per sensor and hour: readings and their sum."""
    from pyspark.sql import functions as F

    return (
        readings.groupBy("sensor", F.window("read_at", "1 hour"))
        .agg(F.count("*").alias("readings"), F.sum("value").alias("total"))
        .select(
            "sensor",
            F.col("window.start").alias("hour"),
            F.col("window.end").alias("closes_at"),
            "readings",
            "total",
        )
    )


HOURS = bound_as(
    Table(
        derive=hours,
        primary_key=["sensor", "hour"],
        event_time="hour",
        watermark="2 hours",
        closes_at="closes_at",
        recompute_by=["sensor"],
        depends_within="1 hour",
        checks=[between("total", -100, 100), unique("sensor", "hour")],
    ),
    "hours",
)
HOURS_SCHEMA = pa.schema(
    [
        ("sensor", pa.string()),
        ("hour", pa.timestamp("us", tz="UTC")),
        ("closes_at", pa.timestamp("us", tz="UTC")),
        ("readings", pa.int64()),
        ("total", pa.float64()),
    ]
)


@dataclass
class Plant:
    """A lake with the topic's events, the table `hours`, and ways to fill both."""

    spark: SparkSession
    lake: Lake
    offset: int = 0

    def __post_init__(self) -> None:
        self.lake.ensure(TOPIC.full_name, events_schema(TOPIC), statistics=["read_at", "sensor"])
        self.lake.ensure(HOURS.full_name, HOURS_SCHEMA, statistics=["sensor", "hour"])

    def read(self, *readings: tuple[str | None, datetime, float | None]) -> None:
        """Commit events."""
        rows = [
            {
                "sensor": sensor,
                "read_at": at,
                "value": value,
                "count": None,
                PARTITION: 0,
                OFFSET: self.offset + n,
                "_appended_at": TEN,
                LATE_BY_MS: 0,
                REPLAYED: False,
            }
            for n, (sensor, at, value) in enumerate(readings)
        ]
        self.offset += len(rows)
        # A declared string cannot be null; a table's own column can, and topics stand for tables here.
        Writer(self.lake, TOPIC.full_name).append(
            pa.Table.from_pylist(rows, schema=events_schema(TOPIC)), CommitTag(app="ingest", version=self.offset)
        )

    def live(self, *rows: Row) -> None:
        """Put rows of (sensor, hours after ten, readings, total) into the table."""
        table = pa.Table.from_pylist(
            [
                {
                    "sensor": sensor,
                    "hour": TEN + after * HOUR,
                    "closes_at": TEN + (after + 1) * HOUR,
                    "readings": readings,
                    "total": total,
                }
                for sensor, after, readings, total in rows
            ],
            schema=HOURS_SCHEMA,
        )
        number = self.lake.version(HOURS.full_name)
        Writer(self.lake, HOURS.full_name).append(table, CommitTag(app="test", version=number))

    def refresher(self, table: Table = HOURS, **options: Any) -> Refresher:
        registry = Registry({TOPIC.full_name: TOPIC}, {table.full_name: table})
        return Refresher(self.spark, self.lake, registry, table, **options)

    def publish(self, *scopes: Scope, check: bool = False, **options: Any) -> Written:
        return self.refresher(**options).publish(list(scopes), {"cause": "late", "run": "r"}, check=check).written

    def stored(self) -> list[Row]:
        found = pa.table(self.lake.open(HOURS.full_name).scan()).to_pylist()
        return sorted(
            ((r["sensor"], int((r["hour"] - TEN) / HOUR), r["readings"], r["total"]) for r in found), key=repr
        )


@pytest.fixture(params=["in this process", "by Spark"])
def comparison(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the inputs and compares both sides: large tables make Spark do it, which a bound of no rows does here.

    What differs is few rows in both cases; `infra/delta` publishes such by Spark, too.
    """
    if request.param == "by Spark":
        monkeypatch.setattr("twofold.tables.refresh.refresh.SEARCHED", -1)
        monkeypatch.setattr("twofold.tables.refresh.refresh.COMPARED", 0)


whoever_compares = pytest.mark.usefixtures("comparison")


@pytest.fixture
def plant(spark: SparkSession, settings: Settings) -> Plant:
    return Plant(spark, Lake(replace(settings, engine="auto")))


def using(plant: Plant, engine: Engine) -> Plant:
    """The same lake; refreshes go through this engine."""
    return Plant(plant.spark, Lake(replace(plant.lake.settings, engine=engine)))


def around(sensor: object, first: int, last: int) -> Scope:
    """Rows of a sensor dated from `first` to `last` hours after ten, both included."""
    start, end = epoch_ms(TEN + first * HOUR), epoch_ms(TEN + last * HOUR)
    assert start is not None
    assert end is not None
    return Scope((sensor,), Interval(start, end + 1))


@whoever_compares
def test_the_scopes_are_corrected_and_a_second_time_changes_nothing(plant: Plant) -> None:
    plant.read(("a", TEN, 1.0), ("a", TEN + HOUR / 2, 2.0), ("a", TEN + HOUR, 4.0), ("b", TEN, 8.0))
    plant.live(("a", 0, 1, 1.0), ("a", 5, 7, 7.0), ("b", 0, 9, 9.0))
    written = plant.publish(around("a", 0, 5))
    assert (written.inserted, written.updated, written.deleted, written.version) == (1, 1, 1, 2)
    assert plant.stored() == [("a", 0, 2, 3.0), ("a", 1, 1, 4.0), ("b", 0, 9, 9.0)]
    (commit,) = plant.lake.commits(HOURS.full_name, 1, 2)
    assert (commit.info["cause"], commit.info["run"], len(commit.info["fingerprint"])) == ("late", "r", 25)
    assert plant.publish(around("a", 0, 5)) == Written()
    assert plant.lake.version(HOURS.full_name) == 2


def test_what_another_order_of_addition_makes_of_a_sum_is_no_difference(plant: Plant) -> None:
    """0.1 + 0.2 + 0.3 is 0.6 or the next greater double; the sum of `c` lacks a millionth of its readings."""
    plant.read(*((sensor, TEN + n * HOUR / 4, n / 10) for sensor in "abc" for n in (1, 2, 3)))
    plant.live(("a", 0, 3, 0.6), ("b", 0, 3, 0.6000000000000001), ("c", 0, 3, 0.5999994))
    assert plant.publish(*everything(HOURS)).updated == 1
    assert [row[:3] for row in plant.stored()] == [(sensor, 0, 3) for sensor in "abc"]
    assert [row[3] for row in plant.stored()][:2] == [0.6, 0.6000000000000001]
    assert plant.stored()[2][3] == pytest.approx(0.6)
    exact = bound_as(replace(HOURS, tolerances={"total": 0}), "hours")
    assert plant.refresher(exact).publish(everything(HOURS), {}, check=True).written.updated == 1


@whoever_compares
def test_rows_outside_the_scopes_are_left_alone(plant: Plant) -> None:
    plant.read(*((s, TEN + n * HOUR, 1.0) for s in "ab" for n in range(5)))
    assert plant.publish(around("a", 1, 1), around("a", 3, 3), around("b", 4, 4)).inserted == 3
    assert plant.stored() == [("a", 1, 1, 1.0), ("a", 3, 1, 1.0), ("b", 4, 1, 1.0)]
    assert plant.publish(around(..., 0, 0)).inserted == 2
    assert plant.publish(*everything(HOURS)).inserted == 5


def test_open_rows_are_the_streams(plant: Plant) -> None:
    plant.read(*(("a", TEN + n * HOUR, 1.0) for n in range(4)))
    plant.live(("a", 2, 9, 9.0))
    # The rows of 10 and 11 o'clock close at 11 and 12; that of 12 closes at 13, when the watermark stands.
    written = plant.publish(around("a", 0, 9), closed_before_ms=epoch_ms(TEN + 3 * HOUR))
    assert (written.inserted, written.changed) == (2, 2)
    assert plant.stored() == [("a", 0, 1, 1.0), ("a", 1, 1, 1.0), ("a", 2, 9, 9.0)]


@whoever_compares
def test_a_key_whose_row_is_open_is_the_streams_until_that_has_closed(plant: Plant) -> None:
    """The stream missed the first reading of each, so that its rows begin, and close, later than they should."""

    def since_first(readings: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        first = F.min("read_at")
        return readings.groupBy("sensor").agg(
            first.alias("hour"),
            (first + F.expr("INTERVAL 1 HOUR")).alias("closes_at"),
            F.count("*").alias("readings"),
            F.sum("value").alias("total"),
        )

    table = bound_as(replace(HOURS, derive=since_first, primary_key=["sensor"], checks=[]), "hours")
    plant.read(*((sensor, TEN, 1.0) for sensor in ("a", "b", None)))
    plant.live(("a", 2, 1, 1.0), (None, 2, 1, 1.0))

    def publish(hours_later: float) -> Written:
        refresher = plant.refresher(table, closed_before_ms=epoch_ms(TEN + hours_later * HOUR))
        return refresher.publish(everything(table), {}, check=True).written

    assert publish(2.5).changed == 1
    assert plant.stored() == [("a", 2, 1, 1.0), ("b", 0, 1, 1.0), (None, 2, 1, 1.0)]
    assert publish(2.5) == Written()
    assert publish(3.5).updated == 2
    assert plant.stored() == [("a", 0, 1, 1.0), ("b", 0, 1, 1.0), (None, 0, 1, 1.0)]


@whoever_compares
def test_a_row_without_a_time_counts_inputs_of_every_time(plant: Plant) -> None:
    def paid(readings: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return readings.groupBy("sensor").agg(
            F.max(F.when(F.col("value") > 0, F.col("read_at"))).alias("hour"),
            F.lit(None).cast("timestamp").alias("closes_at"),
            F.count("*").alias("readings"),
            F.sum("value").alias("total"),
        )

    undated = {"derive": paid, "primary_key": ["sensor"], "closes_at": None, "watermark": None, "checks": []}
    table, found = bound_as(replace(HOURS, **undated), "hours"), []
    for hours, value in ((0, -1.0), (5, -2.0), (9, 4.0)):
        plant.read(("a", TEN + hours * HOUR, value))
        plant.refresher(table).publish([around("a", hours, hours)], {}, check=True)
        [row] = pa.table(plant.lake.open(HOURS.full_name).scan()).to_pylist()
        found.append((row["hour"], row["readings"], row["total"]))
    assert found == [(None, 1, -1.0), (None, 2, -3.0), (TEN + 9 * HOUR, 3, 1.0)]


def test_no_scope_is_nothing_to_do(plant: Plant) -> None:
    plant.live(("a", 0, 9, 9.0))
    assert plant.publish() == Written()


@whoever_compares
def test_a_value_may_be_null(plant: Plant) -> None:
    plant.live((None, 0, 9, 9.0), ("a", 0, 9, 9.0))
    assert plant.publish(around(None, 0, 0)).deleted == 1
    assert plant.stored() == [("a", 0, 9, 9.0)]


@whoever_compares
def test_more_than_a_thousand_values_are_distinguished(plant: Plant) -> None:
    plant.read(*((f"s{n}", TEN, 1.0) for n in range(1_203)))
    assert plant.publish(*(around(f"s{n}", 0, 0) for n in range(1_201))).inserted == 1_201
    assert {row[0] for row in plant.stored()} == {f"s{n}" for n in range(1_201)}


def test_a_row_that_breaks_a_rule_stops_the_publication(plant: Plant) -> None:
    plant.read(("a", TEN, 1.0), ("b", TEN, 101.0))
    with pytest.raises(
        QualityFailed, match=r"plant\.hours: the recomputed row .*'b'.* breaks between\(total, -100, 100\)"
    ):
        plant.publish(*everything(HOURS), check=True)
    assert (plant.stored(), plant.lake.version(HOURS.full_name)) == ([], 0)
    assert plant.publish(around("a", 0, 0), check=True).inserted == 1


def test_a_row_that_goes_away_may_have_been_bad(plant: Plant) -> None:
    plant.live(("b", 0, 1, 101.0))
    assert plant.publish(*everything(HOURS), check=True).deleted == 1


def test_more_rows_than_memory_should_hold_are_compared_by_spark(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.tables.refresh.refresh.COMPARED", 1)
    plant.read(*((s, TEN, 1.0) for s in "abc"))
    plant.live(*((s, 0, 9, 9.0) for s in "bcd"))
    settings = plant.lake.settings
    for bound, kind in [(2, "DataFrame"), (3, "Table")]:
        small = Plant(plant.spark, Lake(replace(settings, small_rows=bound)))
        assert type(small.refresher().difference(everything(HOURS))).__name__ == kind
    plant.live(*((f"e{n}", 0, 9, 9.0) for n in range(3)))
    few = Plant(plant.spark, Lake(replace(settings, small_rows=5)))
    assert type(few.refresher().difference(everything(HOURS))).__name__ == "DataFrame"
    assert few.publish(*everything(HOURS)).changed == 7
    assert plant.stored() == [(s, 0, 1, 1.0) for s in "abc"]


def test_larger_rows_than_memory_should_hold_are_compared_by_spark(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame_type = type(plant.spark.range(1))
    to_arrow = frame_type.toArrow

    def refuse(frame: DataFrame) -> pa.Table:
        if "total" not in frame.columns:
            return to_arrow(frame)
        raise RuntimeError("Total size of serialized results is bigger than spark.driver.maxResultSize (375.0 MiB)")

    monkeypatch.setattr(frame_type, "toArrow", refuse)
    plant.read(("a", TEN, 1.0), ("a", TEN + HOUR, 4.0))
    plant.live(("a", 0, 1, 9.0), ("a", 5, 7, 7.0))
    written = plant.publish(around("a", 0, 5))
    assert (written.inserted, written.updated, written.deleted) == (1, 1, 1)
    assert plant.stored() == [("a", 0, 1, 1.0), ("a", 1, 1, 4.0)]


@pytest.mark.parametrize(("held", "kind"), [(1, "DataFrame"), (60, "DataFrame"), (10_000, "Table")])
def test_what_large_inputs_make_is_compared_by_spark(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, held: int, kind: str
) -> None:
    """However few rows they are; an input of a few bytes more than are held is not read by this process at all."""
    monkeypatch.setattr("twofold.tables.refresh.refresh.HELD_BYTES", held)
    monkeypatch.setattr("twofold.infra.rows.sizes.HELD_BYTES", held)
    plant.read(*((s, TEN, 1.0) for s in "abc"))
    plant.live(("a", 0, 9, 9.0))
    assert type(plant.refresher().difference(everything(HOURS))).__name__ == kind
    assert plant.publish(*everything(HOURS)).changed == 3
    assert plant.stored() == [(s, 0, 1, 1.0) for s in "abc"]


def test_a_failed_recomputation_is_no_large_one(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: DataFrame) -> pa.Table:
        raise RuntimeError("a value cannot be cast")

    monkeypatch.setattr(type(plant.spark.range(1)), "toArrow", fail)
    plant.read(("a", TEN, 1.0))
    with pytest.raises(RuntimeError, match="cannot be cast"):
        plant.publish(around("a", 0, 5))


def test_inputs_are_read_at_the_version_that_was_asked_for(plant: Plant) -> None:
    plant.read(("a", TEN, 1.0))
    version = plant.lake.version(TOPIC.full_name)
    plant.read(("a", TEN, 2.0))
    plant.publish(*everything(HOURS), versions={TOPIC.full_name: version})
    assert plant.stored() == [("a", 0, 1, 1.0)]


def test_a_record_that_was_sent_twice_counts_once(plant: Plant) -> None:
    plant.read(("a", TEN, 1.0), ("a", TEN, 1.0), ("a", TEN + HOUR / 60, 1.0))
    plant.publish(*everything(HOURS))
    assert plant.stored() == [("a", 0, 2, 2.0)]


@whoever_compares
def test_a_copy_with_another_value_in_recompute_by_counts_in_every_scope(plant: Plant) -> None:
    topic = replace(TOPIC, dedup_keys=["count"])
    plant.read(("a", TEN, 1.0), ("b", TEN, 2.0), ("a", TEN, 4.0), ("b", TEN, 8.0))
    registry = Registry({TOPIC.full_name: topic}, {HOURS.full_name: HOURS})
    refresher = Refresher(plant.spark, plant.lake, registry, HOURS)
    for scopes in ([around("b", 0, 0)], [around("a", 0, 0)]):
        assert refresher.publish(scopes, {"cause": "late"}, check=True).written.inserted == 1
    assert plant.stored() == [("a", 0, 1, 1.0), ("b", 0, 1, 2.0)]
    assert refresher.publish(everything(HOURS), {"cause": "late"}, check=True).written == Written()


def test_two_publications_at_once_end_in_the_right_rows(plant: Plant) -> None:
    plant.read(*((s, TEN + n * HOUR, 1.0) for s in "abcd" for n in range(3)))
    plant.live(*((s, n, 9, 9.0) for s in "abcd" for n in range(2)))
    engines: list[Engine] = ["auto", "spark"]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda e: using(plant, e).publish(*everything(HOURS)), engines))
    assert plant.stored() == sorted(((s, n, 1, 1.0) for s in "abcd" for n in range(3)), key=repr)
    assert sum(written.changed for written in done) == 12


def test_a_refresh_that_another_was_faster_than_is_computed_again(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark skips in silence a merge whose number was taken after it had been looked at."""
    plant.read(("a", TEN, 1.0), ("b", TEN, 1.0))
    slow, fast = using(plant, "spark"), using(plant, "auto")
    overtaken: list[Written] = []

    def overtake(frame: Any, target: Any, plan: Any) -> bool:
        if not overtaken:
            overtaken.append(fast.publish(around("b", 0, 0)))
        return True

    monkeypatch.setattr("twofold.infra.delta.merge._differs", overtake)
    assert slow.publish(around("a", 0, 0)).changed == 1
    assert [written.changed for written in overtaken] == [1]
    assert plant.stored() == [("a", 0, 1, 1.0), ("b", 0, 1, 1.0)]


@whoever_compares
def test_a_row_that_moved_into_the_scopes_replaces_the_one_outside(plant: Plant) -> None:
    """The one hour of each sensor: that of `a` was ten once, and is eleven by what the log says now."""
    table = bound_as(replace(HOURS, primary_key=["sensor"], checks=[]), "hours")
    plant.read(("a", TEN + HOUR, 4.0), ("b", TEN + HOUR, 8.0))
    plant.live(("a", 0, 1, 1.0))
    refresher = plant.refresher(table)
    written = refresher.publish([around("a", 1, 1), around("b", 1, 1)], {"cause": "late"}, check=False).written
    assert (written.inserted, written.updated, written.deleted) == (1, 1, 0)
    assert plant.stored() == [("a", 1, 1, 4.0), ("b", 1, 1, 8.0)]
    assert refresher.publish([around("a", 0, 1)], {"cause": "late"}, check=False).written == Written()


def test_a_function_that_returns_a_key_twice_is_refused(plant: Plant) -> None:
    def doubled(readings: DataFrame) -> DataFrame:
        return hours(readings).union(hours(readings))

    plant.read(("a", TEN, 1.0))
    with pytest.raises(QualityFailed, match="several rows to be written have the key"):
        plant.refresher(bound_as(replace(HOURS, derive=doubled), "hours")).publish(everything(HOURS), {}, check=True)
    assert plant.stored() == []


def refused(plant: Plant, function: Any, **changes: Any) -> str:
    table = bound_as(replace(HOURS, derive=function, **changes), "hours")
    with pytest.raises(BadDeclaration) as error:
        plant.refresher(table).sides(everything(table))
    return str(error.value)


def test_a_function_that_does_not_fit_is_refused_by_name(plant: Plant) -> None:
    from pyspark.sql import functions as F

    def absent(readings: DataFrame) -> DataFrame:
        return readings.select("colour")

    def none(readings: DataFrame) -> Any:
        return None

    def narrow(readings: DataFrame) -> DataFrame:
        return hours(readings).drop("closes_at")

    def ours(readings: DataFrame) -> DataFrame:
        return hours(readings).withColumn("_offset", F.lit(1))

    def unresolved(readings: DataFrame) -> DataFrame:  # what Spark's own analyser fails on
        return readings.withColumn("count", F.expr("to_timestamp(1Y, 1Y)"))

    assert "unresolved fails: [INTERNAL_ERROR] Cannot resolve" in refused(plant, unresolved)
    message = refused(plant, absent)
    assert message.startswith("tables/plant/hours.py: absent fails: ")
    assert "readings: sensor, read_at, value, count" in message
    assert "none returned NoneType; expected a DataFrame" in refused(plant, none)
    assert "closes_at names closes_at: narrow does not return it" in refused(plant, narrow)
    assert "the columns _offset begin with _" in refused(plant, ours)


def test_a_function_that_asks_the_clock_or_chance_is_refused(plant: Plant) -> None:
    from pyspark.sql import functions as F

    def clock(readings: DataFrame) -> DataFrame:
        return hours(readings).withColumn("seen_at", F.current_timestamp())

    def chance(readings: DataFrame) -> DataFrame:
        return hours(readings.where(F.rand() < 0.5))

    def hidden(readings: DataFrame) -> DataFrame:
        wide = hours(readings).select("*", *(F.lit(n).alias(f"c{n}") for n in range(40)))
        return wide.withColumn("last", F.rand())

    def pure(readings: DataFrame) -> DataFrame:
        return hours(readings).withColumn("hour_s", F.unix_timestamp("hour"))

    assert "clock calls current_timestamp()" in refused(plant, clock)
    assert "chance calls rand()" in refused(plant, chance)
    assert "hidden calls rand()" in refused(plant, hidden)
    plant.refresher(bound_as(replace(HOURS, derive=pure), "hours")).sides(everything(HOURS))


def each_reading(readings: DataFrame) -> DataFrame:
    """A row of each reading."""
    from pyspark.sql import functions as F

    at = F.col("read_at")
    return readings.select(
        "sensor",
        at.alias("hour"),
        at.alias("closes_at"),
        F.lit(1).cast("long").alias("readings"),
        F.col("value").alias("total"),
    )


EACH = bound_as(
    Table(derive=each_reading, primary_key=["sensor", "hour"], event_time="hour", recompute_by=["sensor"]), "hours"
)
NEWEST = bound_as(replace(EACH, primary_key=["sensor"], sequence_by=["hour"]), "hours")


@pytest.mark.parametrize("table", [EACH, NEWEST], ids=["append", "latest"])
@pytest.mark.parametrize("overtakes", ["before the inputs are read", "after the inputs were read"])
@whoever_compares
def test_what_a_stream_writes_meanwhile_stays(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, table: Table, overtakes: str
) -> None:
    plant.read(("a", TEN, 1.0), ("b", TEN, 2.0))
    plant.live(("a", 0, 1, 1.0), ("b", 0, 7, 7.0))
    opened = Refresher.opened

    def stream() -> None:
        monkeypatch.setattr(Refresher, "opened", opened)
        plant.read(("a", TEN + HOUR, 4.0))
        row = {"sensor": "a", "hour": TEN + HOUR, "closes_at": TEN + HOUR, "readings": 1, "total": 4.0}
        Writer(plant.lake, HOURS.full_name).upsert(
            pa.Table.from_pylist([row], schema=HOURS_SCHEMA), table.primary_key, CommitTag(app="stream", version=1)
        )

    def racing(refresher: Refresher, name: str) -> Any:
        if overtakes.startswith("before"):
            stream()
            return opened(refresher, name)
        found = opened(refresher, name)
        stream()
        return found

    monkeypatch.setattr(Refresher, "opened", racing)
    plant.refresher(table).publish(everything(table), {"cause": "backfill"}, check=True)
    of_a = [("a", 0, 1, 1.0), ("a", 1, 1, 4.0)] if table is EACH else [("a", 1, 1, 4.0)]
    assert plant.stored() == [*of_a, ("b", 0, 1, 2.0)]
