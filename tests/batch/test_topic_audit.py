"""An audit of a topic finds any record that is not what the log gives, and its certificate does so without the log."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from batch.topic_audit import TopicReport, check_certificate, compare_with_log
from infra.errors import BadArgument, UnexplainedDifference
from tables import certificates
from tables.setup import Platform
from tests.plant import plant, reading
from tests.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.settings import Settings

pytestmark = pytest.mark.spark

TOPIC = "plant.readings"


@pytest.fixture
def world(spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Offsets 0 to 6 of which 3 is broken, in blocks of four."""
    monkeypatch.setattr(certificates, "BLOCK", 4)
    world = World(spark, settings, "plant", plant(tmp_path / "plant"))
    world.append({"readings": [reading("a", 0, 1), reading("a", 1, None), reading("b", 2, 2), b"{"]})
    world.append({"readings": [reading("a", at, 1) for at in (3, 4, 5)]})
    return world


def audited(world: World) -> TopicReport:
    platform = Platform(world.spark, world.lake, world.registry)
    return compare_with_log(platform, world.registry.topics[TOPIC], {0: 0}, world.read)


def checked(world: World, version: int | None = None) -> TopicReport:
    platform = Platform(world.spark, world.lake, world.registry)
    return check_certificate(platform, world.registry.topics[TOPIC], version)


def test_what_was_ingested_is_what_the_log_gives(world: World) -> None:
    report = audited(world)
    assert (report.passed, report.records, report.blocks) == (True, 7, 2)


@pytest.mark.parametrize(
    ("table", "damage", "block"),
    [
        (TOPIC, lambda t: t.update(updates={"value": "value + 1"}, predicate="_offset = 2"), (0, 0, 4)),
        (TOPIC, lambda t: t.update(updates={"value": "0.0"}, predicate="_offset = 1"), (0, 0, 4)),
        (TOPIC, lambda t: t.delete("_offset = 5"), (0, 4, 8)),
        (TOPIC + "_quarantine", lambda t: t.update(updates={"value": "X'7B7B'"}), (0, 0, 4)),
    ],
)
def test_a_block_with_a_wrong_record_is_named(
    world: World, table: str, damage: Callable[[DeltaTable], object], block: tuple[int, int, int]
) -> None:
    damage(DeltaTable(world.lake.uri(table)))
    report = audited(world)
    assert list(report.differing) == [block]
    named = f"1 of 2 blocks of offsets: partition 0 [{block[1]}, {block[2]})"
    with pytest.raises(UnexplainedDifference, match=re.escape(named)):
        report.raise_if_wrong()


def test_a_certificate_is_of_a_version_and_needs_no_log(world: World) -> None:
    with pytest.raises(BadArgument, match="There is no certificate"):
        checked(world)
    version = world.lake.version(TOPIC)
    assert audited(world).versions[0] == version
    world._log.clear()
    world.append({"readings": [reading("a", 9, 1)]})
    DeltaTable(world.lake.uri(TOPIC)).update(updates={"value": "7.0"}, predicate="_offset = 0")
    assert (checked(world).passed, checked(world, version).records) == (True, 7)


def test_a_certificate_that_is_not_of_these_rows_fails(world: World) -> None:
    audited(world)
    ledger = DeltaTable(world.lake.uri(certificates.CERTIFICATES))
    ledger.update(updates={"total": "'1'"}, predicate='"start" = 4')
    assert list(checked(world).differing) == [(0, 4, 8)]
