"""The file of views for analysts: what they show, and that readers go on while it is replaced."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from tests import ROOT
from tests.tables.declared import written
from twofold.features.analysts.analytics_file import write_analytics
from twofold.features.analysts.table_views import connect
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.status.ledgers import describe_ledgers
from twofold.streaming.query import progress
from twofold.tables.declare.registry import Registry, load

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)
TEN, ELEVEN, TWELVE = (NINE + timedelta(hours=n) for n in (1, 2, 3))
TOPIC = '''\
"""What sensors read; it's for a test.

sensor: which
value: volts
"""
from twofold import Topic

TOPIC = Topic(
    schema={"sensor": "string", "read_at": "timestamp", "value": "double?"},
    event_time="read_at",
    message_key="sensor",
    dedup_keys=["sensor"],
)
'''
HOURS = '''\
"""Sums of hours."""
from twofold import F, table


@table(owner="the lab")
def hours(readings):
    """One row per sensor and hour.

    total: their sum, volts
    """
    return readings.groupBy("sensor", F.window("read_at", "1 hour")).agg(F.sum("value").alias("total")).select(
        "sensor", F.col("window.start").alias("hour"), F.col("window.end").alias("closes_at"), "total"
    )
'''
FILES = {"plant/readings.py": TOPIC, "plant/hours.py": HOURS}


def times(*values: datetime | None) -> pa.Array:
    return pa.array(values, pa.timestamp("us", "UTC"))


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return load(written(tmp_path / "tables", FILES)).require_sound()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A home with one topic, one table of two hours, and the correction of the first."""
    settings = Settings.from_environment({"TWOFOLD_HOME": str(tmp_path / "it's home")})
    lake = Lake(settings)
    hours = pa.table(
        {"sensor": ["a", "a"], "hour": times(NINE, TEN), "closes_at": times(TEN, ELEVEN), "total": [1.0, 2.0]}
    )
    write_deltalake(lake.uri("plant.hours"), hours)
    events = {"sensor": ["a", None], "read_at": times(NINE, TEN), "value": [1.0, None], "_offset": [7, None]}
    write_deltalake(lake.uri("plant.readings"), pa.table({**events, "_late_by_ms": pa.nulls(2, pa.int64())}))
    key = '{"sensor":"a","hour":"2026-01-01T09:00:00+00:00"}'
    corrections = {"table": ["plant.hours"] * 3, "key": [key, key, '{"sensor":"b","hour":"2026-01-01T09:00:00+00:00"}']}
    corrections |= {"before": ["first", "second", "other"], "cause": ["late", "replay", "late"], "version": [3, 5, 4]}
    write_deltalake(lake.uri("ledger.corrections"), pa.table({**corrections, "recorded_at": times(TEN, TWELVE, TEN)}))
    describe_ledgers(lake)
    return settings


def test_a_table_and_its_columns_are_described(settings: Settings, registry: Registry) -> None:
    with opened(settings, registry) as analytics:
        found = analytics.execute(
            'SELECT "table", "column", description, made_of, table_description, owner FROM dictionary'
        ).fetchall()
        [(of_table,)] = rows(
            analytics, "SELECT comment FROM duckdb_views() WHERE view_name = 'readings' AND schema_name = 'plant'"
        )
    assert ("plant.hours", "sensor", "which", "readings.sensor", "Sums of hours.", "the lab") in found
    assert ("plant.hours", "total", "their sum, volts", "readings.value", "Sums of hours.", "the lab") in found
    assert [row[2] for row in found if row[:2] == ("plant.hours", "closes_at")] == [None]
    [offset] = [row[2] for row in found if row[:2] == ("plant.readings", "_offset")]
    assert offset.startswith("offset in the partition")
    assert of_table == "What sensors read; it's for a test."


def test_a_ledger_and_its_columns_are_described(settings: Settings, registry: Registry) -> None:
    with opened(settings, registry) as analytics:
        query = 'SELECT "column", description, table_description FROM dictionary WHERE "table" = \'ledger.corrections\''
        found = rows(analytics, query)
    assert ("key", "JSON: the key of the row") in [row[:2] for row in found]
    assert {of_table.partition(".")[0] for *_, of_table in found} == {"One row per table row that batch work changed"}
    assert [column for column, text, _ in found if text is None] == []


def test_a_topic_has_its_records_without_heartbeats(settings: Settings, registry: Registry) -> None:
    with opened(settings, registry) as analytics:
        assert rows(analytics, "SELECT sensor, _offset FROM readings") == [("a", 7)]


def test_the_rows_that_the_stream_has_closed_are_final(settings: Settings, registry: Registry) -> None:
    with opened(settings, registry) as analytics:
        assert rows(analytics, "SELECT hour FROM plant.hours_final") == [], "no stream has run"
        progress.write(settings, progress.Progress(domain="plant", query="hours", watermark=TEN + timedelta(minutes=1)))
        assert rows(analytics, "SELECT hour FROM plant.hours_final") == [(NINE,)]
        progress.write(settings, progress.Progress(domain="plant", query="hours", watermark=TWELVE))
        assert rows(analytics, "SELECT hour FROM plant.hours_final ORDER BY hour") == [(NINE,), (TEN,)]


def test_a_row_has_the_count_of_its_corrections_and_what_it_was_before(settings: Settings, registry: Registry) -> None:
    with opened(settings, registry) as analytics:
        found = rows(
            analytics,
            "SELECT hour, total, _corrections, _corrected_at, _cause, _before FROM plant.hours_with_corrections "
            "ORDER BY hour",
        )
    assert found == [(NINE, 1.0, 2, TWELVE, "replay", "first"), (TEN, 2.0, 0, None, None, None)]


def test_freshness_is_that_of_the_time_of_the_query(settings: Settings, registry: Registry) -> None:
    query = 'SELECT "table", version, freshness_s, closed_before, error FROM freshness'
    with opened(settings, registry) as analytics:
        assert rows(analytics, query) == [("plant.hours", 0, *[None] * 3), ("plant.readings", 0, *[None] * 3)]
        write_deltalake(
            Lake(settings).uri("plant.hours"),
            pa.table({"sensor": ["b"], "total": [3.0]}),
            mode="append",
            schema_mode="merge",
        )
        made = progress.Progress(domain="plant", query="hours", watermark=TEN, freshness_s=1.5)
        progress.write(settings, made)
        progress.write(settings, progress.Progress(domain="plant", query="ingest", error="no broker"))
        assert rows(analytics, query) == [
            ("plant.hours", 1, 1.5, TEN, None),
            ("plant.readings", 0, None, None, "no broker"),
        ]
        [(age_s,)] = rows(analytics, "SELECT max(age_s) FROM freshness")
        assert 0 <= age_s < 600


def test_a_table_is_read_at_each_of_its_versions(settings: Settings, registry: Registry) -> None:
    write_deltalake(Lake(settings).uri("plant.hours"), pa.table({"sensor": ["b"]}), mode="append", schema_mode="merge")
    with opened(settings, registry) as analytics:
        counts = [rows(analytics, f"SELECT count(*) FROM at_version('plant.hours', {n})") for n in (0, 1)]
        found = rows(analytics, "SELECT version, operation FROM versions('plant.hours') ORDER BY version")
        [(age,)] = rows(analytics, "SELECT now() - max(committed_at) FROM versions('plant.hours')")
    assert counts == [[(2,)], [(3,)]]
    assert found == [(0, "WRITE"), (1, "WRITE")]
    assert timedelta() <= age < timedelta(minutes=10)


@pytest.mark.parametrize("relation", ["dictionary", "freshness", "versions('plant.hours')", "plant.hours_final"])
def test_polars_has_each_type_of_what_the_file_adds(settings: Settings, registry: Registry, relation: str) -> None:
    with opened(settings, registry) as analytics:
        found = polars.from_arrow(analytics.execute(f"FROM {relation}").to_arrow_table())
        assert len(found) == len(rows(analytics, f"FROM {relation}"))


@pytest.mark.parametrize(("offset", "version"), [(0, 1), (6, 1), (7, 3), (9, 3), (10, None)])
def test_the_version_with_an_offset_is_the_first_that_says_so(
    settings: Settings, registry: Registry, offset: int, version: int | None
) -> None:
    """Ingest has offsets below 7, then a commit of another program, then those below 10."""
    for info in ('{"ends":{"0":7,"1":900}}', "by hand", '{"ends":{"0":10,"1":900}}', '{"ends":{"0":10,"1":950}}'):
        commit(settings, "plant.readings", info)
    with opened(settings, registry) as analytics:
        assert rows(analytics, f"SELECT version_with('plant.readings', 0, {offset})") == [(version,)]


def test_a_table_is_read_as_of_an_offset_of_the_topic(settings: Settings, registry: Registry) -> None:
    """The commits of the stream read the topic below versions 1, 2, 3 only in part, and 3; the last is a correction."""
    commit(settings, "plant.readings", '{"ends":{"0":7}}')
    commit(settings, "plant.readings", '{"ends":{"0":10}}')
    said = ('{"plant.readings":1}}', '{"plant.readings":2}}', '{"plant.readings":3},"parts":["plant.readings"]}')
    for text in (*said, '{"plant.readings":3},"parts":[]}'):
        commit(settings, "plant.hours", f'{{"versions":{text}')
    commit(settings, "plant.hours", '{"cause":"late","inputs":{"plant.readings":9}}')
    ask = "SET VARIABLE v = (SELECT version_after('plant.hours', 'plant.readings', {version})); SELECT getvariable('v')"
    with opened(settings, registry) as analytics:
        found = [
            rows(analytics, ask.format(version=f"version_with('plant.readings', 0, {offset})")) for offset in (6, 9, 10)
        ]
        later = rows(analytics, ask.format(version=3))
        rows(analytics, ask.format(version=1))
        [(count,)] = rows(analytics, "SELECT count(*) FROM at_version('plant.hours', getvariable('v'))")
    assert (found, later) == ([[(2,)], [(4,)], [(None,)]], [(None,)])
    assert count == 2 + 2, "two rows of the fixture, and one of each commit"


def commit(settings: Settings, name: str, info: str) -> None:
    """Add a row without values by a commit that says this of itself."""
    row = {"sensor": pa.nulls(1, pa.string())}
    properties = CommitProperties(custom_metadata={"userMetadata": info})
    write_deltalake(
        Lake(settings).uri(name), pa.table(row), mode="append", schema_mode="merge", commit_properties=properties
    )


def test_a_declared_table_keeps_its_name(settings: Settings, tmp_path: Path) -> None:
    for name in ("plant.hours_final", "plant.freshness"):
        write_deltalake(Lake(settings).uri(name), pa.table({"n": [7]}))
    registry = load(written(tmp_path / "tables", FILES))
    with opened(settings, registry) as analytics:
        assert rows(analytics, "FROM plant.hours_final") == [(7,)]
        assert rows(analytics, "FROM plant.freshness") == [(7,)]
        assert len(rows(analytics, "FROM freshness")) == 2


def test_a_table_of_an_older_definition_keeps_its_view_alone(settings: Settings, registry: Registry) -> None:
    write_deltalake(
        Lake(settings).uri("plant.hours"), pa.table({"total": [7]}), mode="overwrite", schema_mode="overwrite"
    )
    with opened(settings, registry) as analytics:
        assert rows(analytics, "FROM plant.hours") == [(7,)]
        views = {
            name for (name,) in rows(analytics, "SELECT view_name FROM duckdb_views() WHERE schema_name = 'plant'")
        }
    assert views == {"hours", "readings"}


def test_a_home_without_tables_has_a_file(settings: Settings, registry: Registry, tmp_path: Path) -> None:
    with opened(replace(settings, home=tmp_path / "new"), registry) as analytics:
        assert rows(analytics, "FROM dictionary") == []


def test_columns_that_come_later_are_there_for_a_file_from_before(settings: Settings, registry: Registry) -> None:
    with opened(settings, registry) as analytics:
        more = pa.table({"sensor": ["b"], "peak": [9.0]})
        write_deltalake(Lake(settings).uri("plant.hours"), more, mode="append", schema_mode="merge")
        assert rows(analytics, "SELECT peak FROM plant.hours WHERE sensor = 'b'") == [(9.0,)]


READER = """
import sys
from pathlib import Path
from twofold.features.analysts.table_views import connect

for _ in range(12):
    with connect(Path(sys.argv[1]), read_only=True) as analytics:
        query = "SELECT (SELECT count(*) FROM hours), (SELECT count(*) FROM dictionary)"
        [(hours, described)] = analytics.execute(query).fetchall()
        assert (hours, described > 0) == (2, True), (hours, described)
print("read")
"""


def test_readers_in_other_processes_go_on_while_it_is_replaced(settings: Settings, registry: Registry) -> None:
    file = write_analytics(settings, registry)
    command = [sys.executable, "-c", READER, str(file)]
    readers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    with connect(file, read_only=True) as before:
        replaced = 0
        while any(reader.poll() is None for reader in readers):
            write_analytics(settings, registry)
            replaced += 1
        assert rows(before, "SELECT count(*) FROM hours") == [(2,)]
    ends = [(reader.communicate()[0].splitlines()[-1:], reader.returncode) for reader in readers]
    assert ends == [(["read"], 0)] * 2
    assert replaced > 1
    assert [path.name for path in settings.home.glob("analytics*")] == ["analytics.duckdb"]


def rows(connection: DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def opened(settings: Settings, registry: Registry) -> DuckDBPyConnection:
    return connect(write_analytics(settings, registry), read_only=True)
