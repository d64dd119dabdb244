"""What outputs have left goes once no table declares them and nothing moves them; and what receivers refused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.plant import plant
from tests.tables.declared import TABLE_FILE, edited
from twofold.batch.chores.doomed import Doomed
from twofold.features.outputs.output_chores import refused_rows, undeclared
from twofold.features.outputs.refused_rows import REFUSED, SCHEMA
from twofold.features.outputs.revealed_places import Place, note_revealed
from twofold.features.outputs.targets.webhook_chores import refused_bodies
from twofold.features.outputs.targets.webhook_queue import WebhookQueue
from twofold.features.search.search_chores import undeclared_indexes
from twofold.infra.delta.lake import Lake
from twofold.infra.sqlite_file import open_sqlite
from twofold.tables.declare.registry import Registry

NOW = datetime.now(UTC)
DECLARED = edited(TABLE_FILE, "import table", "import table, to_webhook")
DECLARED = edited(DECLARED, "@table(", '@table(outputs=[to_webhook("there")], ')


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """A domain whose table `newest` has an output, `there`."""
    return plant(tmp_path / "project", newest=edited(DECLARED, "latest", "newest"))


def aged(file: Path, days: float) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    then = (NOW - timedelta(days=days)).timestamp()
    os.utime(file, (then, then))
    return file


def left(lake: Lake, days: float, *names: str) -> None:
    for name in names:
        aged(lake.settings.home / "outputs" / name, days)


def removed(doomed: Iterator[Doomed]) -> Sequence[str]:
    gone = list(doomed)
    for each in gone:
        each.remove()
        each.remove()
    return [each.what for each in gone]


def test_queues_and_states_go_that_no_table_declares(lake: Lake, registry: Registry) -> None:
    left(lake, 31, "plant.newest.there.sqlite", "plant.newest.there.queue.json")
    left(lake, 31, "plant.newest.new.sqlite", "plant.newest.new.sqlite-wal", "plant.newest.new.queue.json")
    left(lake, 29, "plant.hours.young.sqlite")
    left(lake, 31, "plant.hours.young.json")
    assert removed(undeclared(lake, registry, NOW)) == ["outputs/plant.newest.new"]
    names = {file.name for file in lake.settings.home.glob("outputs/*")}
    assert names == {
        "plant.newest.there.sqlite",
        "plant.newest.there.queue.json",
        "plant.hours.young.sqlite",
        "plant.hours.young.json",
    }


def test_what_a_process_still_moves_stays(lake: Lake, registry: Registry) -> None:
    left(lake, 31, "plant.hours.old.json", "plant.kept.old.json")
    lake.history("plant.hours").note("output old", 3)
    assert removed(undeclared(lake, registry, NOW)) == ["outputs/plant.kept.old"]


def test_what_may_have_values_of_persons_is_left_to_a_person(lake: Lake, registry: Registry) -> None:
    left(lake, 31, "plant.hours.mail.sqlite")
    place = Place("plant.hours", "mail", "webhook", "there")
    note_revealed(lake, place)
    assert removed(undeclared(lake, registry, NOW)) == []
    note_revealed(lake, place, is_gone=True)
    assert removed(undeclared(lake, registry, NOW)) == ["outputs/plant.hours.mail"]


def test_indexes_go_that_no_table_declares(lake: Lake, registry: Registry) -> None:
    folder = lake.settings.home / "search"
    aged(folder / "plant.hours.hours" / "0f" / "meta.json", 31)
    aged(folder / "plant.newest.there" / "0f" / "meta.json", 31)
    assert removed(undeclared_indexes(lake, registry, NOW)) == ["search/plant.hours.hours"]
    assert [path.name for path in folder.iterdir()] == ["plant.newest.there"]


def test_changes_that_a_receiver_refused_go_after_a_month(lake: Lake, registry: Registry) -> None:
    [(table, output)] = registry.outputs()
    assert list(refused_bodies(lake, registry, NOW)) == [], "nothing was ever sent"
    queue = WebhookQueue(lake, Place.declared(table, output), output)
    assert queue.waiting() == (0, "")
    connection = open_sqlite(queue.file)
    for number, (refused, days) in enumerate([(1, 31), (1, 29), (0, 31)]):
        values = [f"msg_{number}", f"key {number}", "body", refused, (NOW - timedelta(days=days)).timestamp()]
        connection.execute("INSERT INTO changes (id, key, body, refused, first_at) VALUES (?, ?, ?, ?, ?)", values)
    assert removed(refused_bodies(lake, registry, NOW)) == ["outputs/plant.newest.there.sqlite"]
    assert connection.execute("SELECT id FROM changes").fetchall() == [("msg_1",), ("msg_2",)]
    connection.close()
    assert removed(refused_bodies(lake, registry, NOW)) == []


def test_refused_rows_of_more_than_a_year_ago_go(lake: Lake, registry: Registry) -> None:
    lake.ensure(REFUSED, SCHEMA, statistics=["table", "output", "version", "recorded_at"])
    for days in (401, 399):
        row = {"table": "plant.newest", "key": str(days), "version": days, "recorded_at": NOW - timedelta(days=days)}
        write_deltalake(lake.open(REFUSED), pa.Table.from_pylist([row], SCHEMA), mode="append")
    assert removed(refused_rows(lake, registry, NOW)) == [REFUSED]
    assert pa.table(lake.open(REFUSED).scan())["key"].to_pylist() == ["399"]
