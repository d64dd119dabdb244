"""Columns over several tables: sources up to the topics, readers down to the last table, and what decides of rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.plant import DAYS_FILE, plant
from tests.tables.declared import edited
from twofold.infra.delta.lake import Lake
from twofold.status.catalog import catalog_of
from twofold.status.fold import Facts
from twofold.status.parts.column_lineage import ColumnLineage, Place

READINGS, HOURS, DAYS = "plant.readings", "plant.hours", "plant.days"
VALUE, TOTAL, SUM = Place(READINGS, "value"), Place(HOURS, "total"), Place(DAYS, "total")


def test_a_column_is_followed_up_and_down_through_all_tables(lake: Lake, tmp_path: Path) -> None:
    lineage = ColumnLineage(catalog_of(plant(tmp_path, days=DAYS_FILE), Facts(lake)))
    assert (lineage.sources(SUM), lineage.sources(TOTAL), lineage.sources(VALUE)) == ([TOTAL], [VALUE], [])
    assert lineage.readers(TOTAL) == [SUM]
    assert Place(HOURS, "greatest") in lineage.readers(VALUE)
    assert lineage.family(SUM) == {SUM: [TOTAL], TOTAL: [VALUE], VALUE: []}
    assert set(lineage.family(TOTAL)) == {SUM, TOTAL, VALUE}


def test_conditions_and_groups_name_the_columns_of_inputs(lake: Lake, tmp_path: Path) -> None:
    catalog = catalog_of(plant(tmp_path, days=DAYS_FILE), Facts(lake))
    assert catalog[HOURS].influences == {
        "which rows count": [f"{READINGS}.value"],
        "which row they go to": [f"{READINGS}.sensor", f"{READINGS}.read_at"],
    }
    decides = ColumnLineage(catalog).decides
    assert decides[VALUE] == {"which rows count": [HOURS, "plant.kept"]}
    assert decides[Place(HOURS, "sensor")] == {"which row they go to": [DAYS]}


def test_no_column_is_known_of_a_function_that_cannot_be_read(lake: Lake, tmp_path: Path) -> None:
    summed = 'return hours.groupBy("sensor").agg(F.sum("total").alias("total"))'
    unread = edited(DAYS_FILE, summed, 'return hours.mapInArrow(lambda rows: rows, "sensor string, total double")')
    registry = plant(tmp_path, days=unread)
    lake.ensure(DAYS, pa.schema([("sensor", pa.string()), ("total", pa.float64())]), statistics=[])
    entry = catalog_of(registry, Facts(lake))[DAYS]
    assert entry.lineage == {}
    assert set(entry.untraced) == {"sensor", "total"}


def test_a_name_with_dots_is_of_a_column() -> None:
    assert Place.parse("plant.hours.a.b") == Place("plant.hours", "a.b")
