"""Counts of a snapshot: late records and corrected rows, from several commits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from batch.ledgers.run_ledgers import CORRECTIONS, Ledgers
from infra.delta.delta_writer import CommitTag, Writer
from infra.delta.lake import Lake
from infra.settings import Settings
from status.observer import Observer, count_corrections, count_late
from tables.declare.metadata_columns import LATE_BY_MS, OFFSET
from tables.refresh.events.record_decoder import events_schema
from tests.plant import plant

HOUR_MS = 3_600_000  # the delay of `hours` and of `kept`


def append(lake: Lake, name: str, number: int, schema: pa.Schema, **columns: Sequence[object]) -> None:
    rows = len(next(iter(columns.values())))
    arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type) for f in schema]
    Writer(lake, name).append(pa.table(arrays, schema=schema), CommitTag(app="test", version=number, info={}))


def test_a_record_is_late_from_the_delay_on_and_a_heartbeat_is_none(lake: Lake, tmp_path: Path) -> None:
    registry = plant(tmp_path / "declared")
    assert count_late(lake, registry) == {"plant.hours": 0, "plant.kept": 0}, "before its topic is there"
    topic = registry.topics["plant.readings"]
    schema = events_schema(topic)
    lake.ensure(topic.full_name, schema, statistics=[topic.event_time, LATE_BY_MS])
    late = {LATE_BY_MS: [None, -5, HOUR_MS - 1, HOUR_MS], OFFSET: [0, 1, 2, 3]}
    append(lake, topic.full_name, 1, schema, **late)
    append(lake, topic.full_name, 2, schema, **{LATE_BY_MS: [9 * HOUR_MS, 9 * HOUR_MS], OFFSET: [4, None]})
    assert count_late(lake, registry) == {"plant.hours": 2, "plant.kept": 2}, "offsets 3 and 4"


def test_corrected_rows_are_counted_by_table(lake: Lake) -> None:
    assert count_corrections(lake) == {}
    Ledgers(lake).ensure()
    assert count_corrections(lake) == {}
    schema = pa.schema(lake.open(CORRECTIONS).schema())
    append(lake, CORRECTIONS, 1, schema, table=["plant.hours", "plant.days"])
    append(lake, CORRECTIONS, 2, schema, table=["plant.hours"])
    assert count_corrections(lake) == {"plant.hours": 2, "plant.days": 1}


def test_events_whose_files_are_gone_are_a_problem_and_all_else_is_shown(settings: Settings, tmp_path: Path) -> None:
    registry, lake = plant(tmp_path / "declared"), Lake(settings)
    topic = registry.topics["plant.readings"]
    lake.ensure(topic.full_name, events_schema(topic), statistics=[topic.event_time])
    append(lake, topic.full_name, 1, events_schema(topic), **{LATE_BY_MS: [HOUR_MS], OFFSET: [0]})
    for file in Path(lake.uri(topic.full_name)).glob("*.parquet"):
        file.unlink()
    now = Observer(settings, registry).snapshot()
    assert [problem for problem in now.problems if problem.startswith("late records: ")] != []
    assert [(table.name, table.late) for table in now.tables] == [
        ("plant.hours", None), ("plant.kept", None), ("plant.newest", None),
    ]  # fmt: skip
