"""Batch work does as a thin client of a Spark Connect server what the tests of its own show in this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests import rewrites
from tests.connect_session import remote, serve
from tests.late_reading import TOPIC, ZERO, damage, hours, platform
from tests.tables.declared import a_table
from twofold import sql
from twofold.batch.as_of import FINAL, AsOf
from twofold.batch.audit.hash_buckets import Turn
from twofold.batch.audit.table_audit import audit_table
from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.rewrite import replay
from twofold.infra.errors import BadDeclaration
from twofold.infra.project.settings import Engine
from twofold.infra.rows.rows import in_spark
from twofold.tables.refresh.derived_rows import derive
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="session")
def endpoint(spark: SparkSession) -> str:
    return serve(spark)


@pytest.fixture(params=["in process", "through Connect"])
def session(request: pytest.FixtureRequest, late_reading: World, endpoint: str) -> Iterator[SparkSession]:
    through = (
        remote(endpoint, late_reading.settings)
        if request.param == "through Connect"
        else nullcontext(late_reading.spark)
    )
    with through as session:
        yield session


as_a_client = pytest.mark.parametrize("session", ["through Connect"], indirect=True)


@pytest.fixture
def engine() -> Engine:
    return "auto"


@pytest.fixture
def world(session: SparkSession, late_reading: World, tmp_path: Path, engine: Engine) -> World:
    """A copy of what was streamed, to be worked on by a session and an engine."""
    shutil.copytree(late_reading.settings.home, tmp_path / "home")
    settings = replace(late_reading.settings, home=tmp_path / "home", engine=engine)
    return World(session, settings, "plant", late_reading.registry, dict(late_reading.log))


def changed(outcomes: list[RunResult]) -> dict[tuple[str, str], tuple[int, int, int]]:
    return {(o.table, o.cause): (o.inserted, o.updated, o.deleted) for o in outcomes if o.changed}


@pytest.mark.parametrize(
    ("session", "engine"),
    [
        ("in process", "auto"),
        ("through Connect", "auto"),
        pytest.param("through Connect", "spark", marks=pytest.mark.prove),
    ],
    indirect=["session"],
)
def test_reconcile_corrects_what_was_late_and_then_nothing(world: World) -> None:
    assert hours(world) == {("a", 0): 3.0, ("b", 0): 5.0, ("a", 9): 1.0, ("b", 9): 1.0}
    assert changed(world.reconcile(["hours"])) == {("plant.hours", "late"): (0, 1, 0)}
    assert hours(world) == {("a", 0): 7.0, ("b", 0): 5.0, ("a", 9): 1.0, ("b", 9): 1.0}
    again = world.reconcile(["hours"], verify=True)
    assert [(o.changed, o.unexplained, o.files_written) for o in again] == [(0, 0, 0)] * len(again)


@as_a_client
def test_a_backfill_puts_damaged_rows_right_and_an_audit_finds_them_first(world: World) -> None:
    world.reconcile(["hours"])
    damage(world, "plant.hours", {"total": "1005.0"}, "sensor = 'b' AND total = 5.0")
    table = world.registry.find_table("hours")
    found = audit_table(platform(world), table, Turn())
    assert (found.unexplained, [d.key["sensor"] for d in found.differences]) == (1, ["b"])
    assert changed([rewrites.backfill(platform(world), table, ZERO)]) == {("plant.hours", "backfill"): (0, 1, 0)}
    assert hours(world)["b", 0] == 5.0
    assert rewrites.backfill(platform(world), table, None).changed == 0


@as_a_client
def test_a_replay_and_a_redrive_carry_what_changed_through_every_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "Log", lambda platform, topics: world)
    topic = world.registry.topics[TOPIC]
    damage(world, TOPIC, {"value": "value + 100"}, "_offset = 2")
    outcomes = rewrites.replay(platform(world), topic)
    assert changed(outcomes)[TOPIC, "replay"] == (0, 1, 0)
    assert hours(world) == {("a", 0): 7.0, ("b", 0): 5.0, ("a", 9): 1.0, ("b", 9): 1.0}
    assert changed(rewrites.replay(platform(world), topic)) == {}
    assert changed(rewrites.redrive(platform(world), topic)) == {}, "it is no JSON today either"


@as_a_client
def test_a_table_as_of_an_offset_has_the_records_before_it(world: World) -> None:
    rows = AsOf(platform(world), {TOPIC: {0: 3}}).rows(world.registry.find_table("hours")).toArrow().to_pylist()
    assert {(row["sensor"], row["total"], row[FINAL]) for row in rows} == {("a", 3.0, False), ("b", 5.0, False)}


def test_no_rows_of_a_schema_are_a_frame_as_some_are(session: SparkSession) -> None:
    rows = pa.table({"sensor": ["a"], "hour": pa.array([0], pa.timestamp("us", "UTC")), "total": [1.5]})
    assert in_spark(session, rows.slice(1)).toArrow().to_pylist() == []
    assert in_spark(session, rows.slice(1)).dtypes == in_spark(session, rows).dtypes


@pytest.mark.parametrize("name", ["rand", "current_timestamp", "uuid"])
def test_an_impure_function_is_refused(session: SparkSession, late_reading: World, name: str) -> None:
    from pyspark.sql import functions as F

    def hours(readings: DataFrame) -> DataFrame:
        impure = {"rand": F.rand, "current_timestamp": F.current_timestamp, "uuid": lambda: F.expr("uuid()")}[name]()
        return readings.select("sensor", F.col("read_at").alias("closes_at"), impure.alias("hour"))

    readings = late_reading.lake.frame(session, TOPIC)
    with pytest.raises(BadDeclaration, match=rf"hours calls {name}\(\)"):
        derive(a_table(derive=hours), {"readings": readings})


def test_sql_text_runs_where_its_inputs_do(session: SparkSession, late_reading: World) -> None:
    readings = late_reading.lake.frame(session, TOPIC)
    text = "WITH a AS (SELECT * FROM {readings} WHERE sensor = 'a') SELECT count(*) AS n FROM a"
    assert sql(text, readings=readings).toArrow()["n"].to_pylist() == [readings.where("sensor = 'a'").count()]


def test_an_impure_function_in_sql_text_is_refused(session: SparkSession, late_reading: World) -> None:
    def hours(readings: DataFrame) -> DataFrame:
        return sql("SELECT sensor, read_at AS closes_at, now() AS hour FROM {readings}", readings=readings)

    with pytest.raises(BadDeclaration, match=r"hours calls now\(\)"):
        derive(a_table(derive=hours), {"readings": late_reading.lake.frame(session, TOPIC)})
