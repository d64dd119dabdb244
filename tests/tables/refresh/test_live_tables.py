"""A live table that only a new rule refuses goes on; a new one like it is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.tables.declared import TOPIC_FILE, edited, written
from twofold.batch.plan.code_changes import code_changes
from twofold.batch.plan.planning import make_plan
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import Unproved
from twofold.tables.declare.declaration_files import mistakes_in
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.acceptance import (
    Accepted,
    accept,
    code_facts,
    code_today,
    live_unproved,
    refused,
    require_one_definition,
    require_proved,
)
from twofold.tables.refresh.open_platform import ensure_domain

NEWEST = '''\
"""The newest readings."""
from twofold import F, Window, table


@table(primary_key=["sensor"], recompute_by=["sensor"])
def newest(readings):
    by = Window.partitionBy("sensor").orderBy("value")
    return readings.withColumn("nth", F.row_number().over(by)).where("nth = 1").drop("nth")
'''
FIRST = '''\
"""The first reading of each sensor."""
from twofold import table


@table(primary_key=["sensor"], recompute_by=["sensor"])
def first(readings):
    return readings
'''
COUNTED = '''\
"""Readings, counted."""
from twofold import F, table


@table({given})
def counted(first):
    return first.groupBy("sensor").agg(F.approx_count_distinct("value").alias("n"))
'''
TEXTS = {"readings": TOPIC_FILE, "newest": NEWEST, "first": FIRST, "counted": COUNTED.format(given="")}
SAYS = {
    "plant.first": "plant.first goes on, but a new table like it is refused: primary_key=['sensor'] does not identify "
    "a row: of several with one key the stream would keep the first, the batch any; write sequence_by=[...], which "
    "says what row stays; or group by the key, or add read_at to it. "
    "More: docs/reference/refusals.md#key-that-does-not-identify-a-row",
    "plant.newest": "plant.newest goes on, but a new table like it is refused: newest calls row_number() without a "
    "total order: of rows that are equal in it any can be first; so that stream and batch choose the same one, add "
    "read_at to orderBy. More: docs/reference/refusals.md#window-without-a-total-order",
}


def plant(folder: Path, **changed: str) -> Registry:
    return load(written(folder, {f"plant/{name}.py": text for name, text in {**TEXTS, **changed}.items()}))


def filled(lake: Lake, registry: Registry) -> None:
    """Makes every table, with a row of today's code."""
    for name, table in registry.tables.items():
        rows = pa.table({"sensor": ["a"]})
        lake.ensure(name, rows.schema, statistics=[])
        Writer(lake, name).append(rows, CommitTag(app="stream/a", version=1, info=code_facts(table, registry)))


def changes(lake: Lake, registry: Registry) -> dict[str, str]:
    return {
        change.table: change.kind for change in code_changes(lake, registry, ["plant"]) if "topic" not in change.kind
    }


def no_session() -> None:
    raise AssertionError("a session was started")


@pytest.fixture
def before(lake: Lake, tmp_path: Path) -> Registry:
    """Two tables that new rules refuse, and one that reads one of them; all are live."""
    registry = plant(tmp_path)
    filled(lake, registry)
    return registry


def test_a_live_table_that_new_rules_refuse_goes_on(lake: Lake, before: Registry) -> None:
    assert list(before.tables) == ["plant.counted", "plant.first", "plant.newest"]
    assert (before.faults, list(before.unproved)) == ({}, ["plant.first", "plant.newest"])
    assert live_unproved(lake, before) == SAYS
    assert refused(lake, before) == {}
    for table in before.tables.values():
        require_proved(lake, table, before)
        require_one_definition(lake, table, before)
    assert ensure_domain(no_session, lake, before, "plant") == {}
    assert changes(lake, before) == {}


def test_a_new_table_that_is_not_proved_is_not_made(lake: Lake, tmp_path: Path) -> None:
    registry = plant(tmp_path)
    assert ensure_domain(no_session, lake, registry, "plant").keys() == registry.tables.keys()
    assert refused(lake, registry) == registry.unproved
    assert live_unproved(lake, registry) == {}
    with pytest.raises(Unproved, match=r"plant/first\.py: primary_key=.*\n.*sequence_by"):
        require_proved(lake, registry.tables["plant.first"], registry)


def test_a_live_table_does_not_change_to_code_that_is_not_proved(lake: Lake, before: Registry, tmp_path: Path) -> None:
    other = plant(tmp_path / "other", newest=edited(NEWEST, '"nth = 1"', '"nth = 2"'))
    assert list(refused(lake, other)) == ["plant.newest"]
    assert list(live_unproved(lake, other)) == ["plant.first"]
    platform = SimpleNamespace(lake=lake, registry=other)
    with pytest.raises(Unproved, match="without a total order"):
        make_plan(platform, ["plant.newest"], lambda copy: [], cause="definition", command=["plan"])  # type: ignore[arg-type]


def test_what_cannot_run_is_refused_with_all_that_is_wrong(tmp_path: Path) -> None:
    registry = plant(tmp_path, newest=edited(NEWEST, 'orderBy("value")', 'orderBy("valu")'))
    assert list(registry.faults) == ["plant.newest"]
    assert not isinstance(registry.faults["plant.newest"], Unproved)
    messages = [mistake.message.partition(": ")[2] for mistake in mistakes_in(registry.faults["plant.newest"])]
    assert ["without a total order" in messages[0], "'valu': it is not there" in messages[1]] == [True, True]


@pytest.mark.parametrize(
    ("table", "old", "new"),
    [
        ("first", '["sensor"], recompute', '["sensor"], sequence_by=["read_at"], recompute'),
        ("newest", 'orderBy("value")', 'orderBy("value", "read_at")'),
    ],
)
def test_code_that_is_proved_is_accepted_without_a_row(
    lake: Lake, before: Registry, tmp_path: Path, table: str, old: str, new: str
) -> None:
    name = f"plant.{table}"
    proved = plant(tmp_path / "proved", **{table: edited(TEXTS[table], old, new)})
    assert name not in proved.unproved
    assert changes(lake, proved) == {name: "changed"}
    fact = code_today(proved.tables[name], proved)
    for step in (Accepted(code=fact.code, through={}), fact):  # as a plan does that changes no row
        accept(lake, name, step)
    assert changes(lake, proved) == {}
    assert lake.rows(name) == 1


def test_tolerances_are_added_without_a_plan(lake: Lake, before: Registry, tmp_path: Path) -> None:
    tolerant = plant(tmp_path / "tolerant", counted=COUNTED.format(given='tolerances={"n": 0.05}'))
    assert changes(lake, tolerant) == {}
