"""BI tools read the views by JDBC: rows, types and descriptions, and they change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyspark
import pytest
from deltalake import write_deltalake
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from tests import ROOT
from twofold.features.analysts.analytics_file import write_analytics
from twofold.infra.delta.lake import Lake
from twofold.infra.java import java
from twofold.infra.project import jars
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load

PLACE = ROOT / ".twofold" / "jdbc"
LOCK = Path(__file__).with_name("duckdb_jdbc.lock")


@pytest.fixture(scope="module")
def java_classes() -> Iterator[Any]:
    """A JVM with DuckDB's driver, which is fetched, 85 MB; it has no Spark."""
    [driver] = pinned = jars.pinned(LOCK)
    PLACE.mkdir(parents=True, exist_ok=True)
    if jars.problems(PLACE, pinned):
        jars.replace(PLACE, pinned)
    [py4j] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(py4j), classpath=str(PLACE / driver.path), java_path=java(), die_on_exit=True
    )
    yield gateway.jvm
    gateway.shutdown()


@pytest.fixture
def connection(java_classes: Any, tmp_path: Path) -> Iterator[Any]:
    """The file of views over one table of flights, as a BI tool opens it."""
    settings = Settings(home=tmp_path / "home")
    hour = pa.array([datetime(2013, 1, 1, 9, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    columns = {"origin": ["JFK"], "hour": hour, "closes_at": hour, "flights": pa.array([3], pa.int64())}
    write_deltalake(Lake(settings).uri("flights.delays_by_hour"), pa.table(columns))
    file = write_analytics(settings, load().restricted_to(["flights"]))
    properties = java_classes.java.util.Properties()
    properties.setProperty("duckdb.read_only", "true")
    connection = java_classes.java.sql.DriverManager.getConnection(f"jdbc:duckdb:{file}", properties)
    [extension] = Path(duckdb_extension_delta.__path__[0]).rglob("delta.duckdb_extension")
    connection.createStatement().execute(f"LOAD '{extension}'")
    yield connection
    connection.close()


def rows(found: Any, *columns: str) -> list[tuple[str, ...]]:
    values = []
    while found.next():
        values.append(tuple(found.getString(column) for column in columns))
    return values


def test_the_driver_is_of_the_version_of_the_reader_of_delta() -> None:
    [driver] = jars.pinned(LOCK)
    assert driver.revision.rpartition(".")[0] == duckdb.__version__


@pytest.mark.fuzz
@pytest.mark.platform
def test_rows_are_read_and_nothing_is_changed(connection: Any) -> None:
    statement = connection.createStatement()
    query = "SELECT origin, flights, epoch(hour)::BIGINT AS s FROM flights.delays_by_hour"
    assert rows(statement.executeQuery(query), "origin", "flights", "s") == [("JFK", "3", "1357030800")]
    with pytest.raises(Py4JJavaError, match="read-only"):
        statement.execute("CREATE TABLE mine (n INT)")


@pytest.mark.fuzz
@pytest.mark.platform
def test_a_tool_shows_what_tables_and_columns_are(connection: Any) -> None:
    about = connection.getMetaData()
    tables = rows(about.getTables(None, "flights", None, None), "TABLE_NAME", "REMARKS")
    assert ("delays_by_hour", "Departure delays by origin airport and hour.") in tables
    columns = rows(about.getColumns(None, "flights", "delays_by_hour", None), "COLUMN_NAME", "TYPE_NAME", "REMARKS")
    assert ("flights", "BIGINT", "departures in the hour") in columns
