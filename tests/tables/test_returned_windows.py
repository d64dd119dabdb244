"""A window that a function returns becomes two columns: the same rows as of a function that selects its times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tables.declared import TOPIC_FILE, written
from twofold.infra.project.settings import Settings
from twofold.tables.declare.analysis import analyse
from twofold.tables.declare.registry import load
from twofold.testing import assert_parity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BY_SQL = """return sql(
        "SELECT sensor, window AS `an hour`, count(*) AS n FROM {r} GROUP BY sensor, window(read_at, '1 hour')",
        r=readings)"""
GROUPED = 'return readings.groupBy("sensor", F.window("read_at", "1 hour")).agg(F.count("*").alias("n"))'
SELECTED = f"""{GROUPED}.select(
        "sensor", F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "n")"""


def test_stream_and_batch_have_the_times_of_a_returned_window(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    bodies = {"returned": GROUPED, "by_sql": BY_SQL, "selected": SELECTED}
    head = '"""Counts."""\nfrom twofold import F, sql, table\n\n\n@table(watermark="1 hour")\n'
    files = {f"plant/{name}.py": f"{head}def {name}(readings):\n    {body}\n" for name, body in bodies.items()}
    registry = load(written(tmp_path / "declared", {"plant/readings.py": TOPIC_FILE, **files})).require_sound()
    known = analyse(spark, registry, list(registry.tables.values()))
    world = assert_parity(spark, settings, *bodies, registry=registry)
    assert known.mistakes == []
    counts = {}
    for name, start, end in [
        ("selected", "window_start", "window_end"),
        ("returned", "window_start", "window_end"),
        ("by_sql", "an hour_start", "an hour_end"),
    ]:
        rows = world.rows(f"plant.{name}").to_pylist()
        counts[name] = sorted((row["sensor"], row[start], row[end], row["n"]) for row in rows)
        assert tuple(known.columns[f"plant.{name}"]) == registry.find_table(name).result_columns
        assert registry.find_table(name).closes_at == end
    assert len(counts["selected"]) > 20
    assert counts["returned"] == counts["by_sql"] == counts["selected"]
