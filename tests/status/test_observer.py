"""A part of the platform that cannot be read is a symptom; a snapshot is saved in the store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.plant import plant
from tests.status.test_fold import append
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import plain, restored
from twofold.status.observer import Observer
from twofold.status.parts.snapshot import Snapshot
from twofold.status.store import Store
from twofold.status.symptoms.diagnosis import symptoms_of
from twofold.streaming.query.progress import Progress, write
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET
from twofold.tables.refresh.events.record_decoder import events_schema

NOW = datetime.now(UTC)
HOUR_MS = 3_600_000  # the delay of `hours` and of `kept`


def test_events_whose_files_are_gone_are_a_symptom_and_all_else_is_shown(settings: Settings, tmp_path: Path) -> None:
    registry, lake = plant(tmp_path / "declared"), Lake(settings)
    topic = registry.topics["plant.readings"]
    lake.ensure(topic.full_name, events_schema(topic), statistics=[topic.event_time])
    append(lake, topic.full_name, 1, events_schema(topic), **{LATE_BY_MS: [HOUR_MS], OFFSET: [0]})
    for file in Path(lake.uri(topic.full_name)).glob("*.parquet"):
        file.unlink()
    now = Observer(settings, registry).snapshot()
    assert [symptom.subject for symptom in symptoms_of(now)] == ["late records", None]
    assert [(table.name, table.late) for table in now.tables] == [
        ("plant.hours", None), ("plant.kept", None), ("plant.newest", None),
    ]  # fmt: skip


def test_a_snapshot_is_saved_as_the_command_prints_it_with_the_catalog(settings: Settings, tmp_path: Path) -> None:
    registry, lake = plant(tmp_path / "declared"), Lake(settings)
    topic = registry.topics["plant.readings"]
    lake.ensure(topic.full_name, events_schema(topic), statistics=[topic.event_time])
    now = Observer(settings, registry).snapshot()
    saved, catalog = Store(settings).latest("snapshot"), Store(settings).latest("catalog")
    assert saved is not None
    assert saved.value == plain(now)
    assert plain(restored(Snapshot, saved.value)) == plain(now)
    assert catalog is not None
    assert list(catalog.value) == ["plant.readings", "plant.hours", "plant.kept", "plant.newest"]
    readings, hours = catalog.value["plant.readings"], catalog.value["plant.hours"]
    assert (readings["kind"], readings["readers"]) == ("topic", ["plant.hours", "plant.kept", "plant.newest"])
    assert (hours["kind"], hours["strategy"], hours["inputs"]) == ("table", "stateful", ["plant.readings"])
    assert hours["declaration"]["key"] == ["sensor", "hour"]
    assert {"name": "value", "type": "double"} in readings["columns"]


def test_a_look_that_is_not_saved_leaves_the_store_as_it_is(settings: Settings, tmp_path: Path) -> None:
    registry, lake = plant(tmp_path / "declared"), Lake(settings)
    topic = registry.topics["plant.readings"]
    lake.ensure(topic.full_name, events_schema(topic), statistics=[topic.event_time, LATE_BY_MS])
    observer = Observer(settings, registry)
    append(lake, topic.full_name, 1, events_schema(topic), **{LATE_BY_MS: [HOUR_MS], OFFSET: [0]})
    assert observer.snapshot(save=False).tables[0].late == 1
    append(lake, topic.full_name, 2, events_schema(topic), **{LATE_BY_MS: [HOUR_MS], OFFSET: [1]})
    assert observer.snapshot(save=False).tables[0].late == 2
    assert (Store(settings).table_versions(), Store(settings).latest("snapshot")) == ({}, None)
    observer.snapshot()
    assert Store(settings).table_versions()[topic.full_name].version == 2


def test_what_is_wrong_is_so_since_it_was_seen_first_until_it_was_not(settings: Settings, tmp_path: Path) -> None:
    registry = plant(tmp_path / "declared")
    observer = Observer(settings, registry)

    def since(age_s: float) -> datetime | None:
        query = Progress(domain="plant", query="hours", updated_at=NOW - timedelta(seconds=age_s), error="no column")
        write(settings, query if age_s else replace(query, error=""))
        return observer.snapshot().since.get("query-failed plant.hours")

    first = since(5)
    assert first is not None
    assert since(9) == first
    assert since(0) is None
    again = since(5)
    assert again is not None
    assert again > first
    assert observer.snapshot(save=False).since["query-failed plant.hours"] == again
