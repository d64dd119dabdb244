"""An audit finds what no late record announces, names it, and repairs nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.batch.audit.two_copies import TOPIC, TwoCopies, recorded
from tests.plant import HOURS_FILE, hour, plant, reading
from tests.tables.declared import edited
from twofold.batch.audit.completeness import missing
from twofold.batch.audit.hash_buckets import Turn
from twofold.batch.audit.table_audit import (
    AuditedTopic,
    AuditReport,
    audit_table,
    audit_tables,
    audit_topics,
    turn_of,
)
from twofold.batch.ledgers.audit_history import last_audits
from twofold.batch.ledgers.run_result import Audited
from twofold.infra.errors import BadArgument, TwofoldError, UnexplainedDifference
from twofold.infra.project.settings import Settings
from twofold.tables.declare.metadata_columns import OFFSET
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = Turn()


@pytest.mark.parametrize(("share", "of"), [(1, 1), (0.5, 2), (0.05, 20), (0.3, 4), (0.01, 100)])
def test_within_as_many_days_as_there_are_shares_each_has_its_turn(share: float, of: int) -> None:
    turns = [turn_of(share, date.fromordinal(date(2013, 1, 1).toordinal() + n)) for n in range(of)]
    assert {turn.of for turn in turns} == {of}
    assert {turn.number for turn in turns} == set(range(of))
    assert all(sum(turn.takes(day) for turn in turns) == 1 for day in range(15_000, 15_500))


@pytest.mark.parametrize("share", [0, -0.5, 1.5])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(BadArgument, match="above 0, at most 1"):
        turn_of(share, date(2013, 1, 1))


def test_a_report_without_faults_raises_nothing() -> None:
    AuditReport(tables=[Audited(table="plant.hours", run="audit-1", turn=0, of=1)]).raise_if_wrong()


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Three days of two sensors, of which all but the last hours are closed."""
    folder = tmp_path_factory.mktemp("before")
    # No broker answers there.
    settings = Settings(home=folder / "home", shuffle_partitions=1, bootstrap="127.0.0.1:9")
    world = World(spark, settings, "plant", plant(folder / "tables"))
    days = [reading(sensor, at, at) for at in range(0, 72, 3) for sensor in ("a", "b")]
    world.append({"readings": [*days[:20], b"no reading"]})
    world.append({"readings": days[20:]})
    world.maintain(world.all_tables)
    world.reconcile(world.all_tables)
    return world


@pytest.fixture
def world(before: World, tmp_path: Path) -> World:
    """The same, in a home of its own."""
    return before.copied_to(replace(before.settings, home=tmp_path / "home"))


def look(world: World, name: str, turn: Turn = ALL) -> Audited:
    platform = Platform(world.spark, world.lake, world.registry)
    return audit_table(platform, world.registry.find_table(name), turn)


def topics_of(world: World) -> list[AuditedTopic]:
    platform = Platform(world.spark, world.lake, world.registry)
    return audit_topics(platform, list(world.registry.tables.values()))


def damage(world: World, name: str, values: dict[str, str], where: str) -> None:
    world.lake.open(f"plant.{name}").update(updates=values, predicate=where)


@pytest.mark.spark
def test_tables_that_are_right_have_equal_buckets(world: World) -> None:
    for name, rows in {"hours": 46, "kept": 46, "newest": 2}.items():
        found = look(world, name)
        assert (found.rows, found.differing, found.unexplained) == (rows, 0, 0), name
        assert 0 < found.buckets <= rows


@pytest.mark.spark
def test_a_table_whose_stream_has_read_nothing_yet_is_no_drift(spark: SparkSession, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", shuffle_partitions=1, bootstrap="127.0.0.1:9")
    world = World(spark, settings, "plant", plant(tmp_path / "tables"))
    world.append({"readings": [reading("a", at, at) for at in range(0, 72, 3)]})
    for name in ("hours", "kept", "newest"):
        found = look(world, name)
        assert (found.unexplained, found.excused > 0) == (0, True), name


@pytest.mark.spark
def test_damaged_rows_are_found_named_and_left_as_they_are(world: World) -> None:
    damage(world, "hours", {"total": "7.5"}, "sensor = 'a' AND total = 24.0")
    damage(world, "hours", {"total": "NULL"}, "sensor = 'b' AND total = 27.0")
    damage(world, "newest", {"value": "-1.0"}, "sensor = 'b'")
    world.lake.open("plant.hours").delete("sensor = 'b' AND total = 3.0")
    found = look(world, "hours")
    assert (found.unexplained, found.excused, found.rows) == (3, 0, 45)
    told = {(d.key["sensor"], d.change): (dict(d.before), dict(d.should)) for d in found.differences}
    assert told["a", "update"] == ({"total": 7.5}, {"total": 24.0})
    assert told["b", "update"] == ({"total": None}, {"total": 27.0})
    assert ("b", "insert") in told
    assert look(world, "newest").unexplained == 1
    with pytest.raises(UnexplainedDifference, match=r"plant\.hours: 3 rows differ and nothing touched them"):
        AuditReport(tables=[found]).raise_if_wrong()
    assert look(world, "hours").unexplained == 3
    kept = last_audits(world.lake)
    assert (kept["plant.hours"].unexplained, kept["plant.hours"].rows, kept["plant.newest"].unexplained) == (3, 45, 1)


@pytest.mark.spark
def test_rounding_is_no_damage_and_a_millionth_is(world: World) -> None:
    damage(world, "hours", {"total": "24.000000000000004"}, "sensor = 'a' AND total = 24.0")
    found = look(world, "hours")
    assert (found.differing, found.excused, found.unexplained) == (1, 0, 0)
    assert world.reconcile(["hours"], verify=True)[-1].unexplained == 0
    damage(world, "hours", {"total": "27.000027"}, "sensor = 'a' AND total = 27.0")
    found = look(world, "hours")
    assert [dict(d.before) for d in found.differences] == [{"total": 27.000027}]


@pytest.mark.spark
def test_a_damaged_row_is_found_on_the_day_of_its_turn(world: World) -> None:
    damage(world, "hours", {"total": "7.5"}, "sensor = 'a' AND total = 24.0")
    world = replace(world, settings=replace(world.settings, small_rows=1))
    day = (hour(24).date() - date(1970, 1, 1)).days
    found = {number: look(world, "hours", Turn(number, 3)) for number in range(3)}
    assert {number: f.unexplained for number, f in found.items()} == {n: int(n == day % 3) for n in range(3)}
    assert sum(f.rows for f in found.values()) == 46
    assert sum(look(world, "newest", Turn(number, 3)).rows for number in range(3)) == 2


@pytest.mark.spark
def test_all_rows_of_a_small_table_are_compared_whatever_the_share(world: World) -> None:
    damage(world, "newest", {"value": "-1.0"}, "sensor = 'b'")
    looks = [look(world, "newest", Turn(number, 20)) for number in (3, 4)]
    assert [(found.of, found.rows, found.unexplained) for found in looks] == [(1, 2, 1)] * 2


def test_an_audit_that_compared_nothing_has_not_passed() -> None:
    blank = Audited(table="plant.hours", run="audit-1", turn=0, of=1)
    assert not AuditReport(tables=[blank]).passed
    assert AuditReport(tables=[replace(blank, rows=3, buckets=2)]).passed


@pytest.mark.spark
def test_a_changed_definition_skips_its_table_and_no_other(world: World, spark: SparkSession, tmp_path: Path) -> None:
    text = edited(HOURS_FILE.format(name="hours", late="correct"), 'F.sum("value")', '(F.sum("value") + 5)')
    changed = World(spark, world.settings, "plant", plant(tmp_path / "new", hours=text))
    damage(world, "newest", {"value": "-1.0"}, "sensor = 'b'")
    tables = changed.registry.in_order("plant")
    found = {f.table: f for f in audit_tables(Platform(spark, world.lake, changed.registry), tables, ALL)}

    assert [name for name, f in found.items() if f.skipped] == ["plant.hours"]
    assert found["plant.hours"].skipped.startswith("plant.hours: its rows were computed by the definition ")
    assert (found["plant.kept"].rows, found["plant.newest"].unexplained) == (46, 1)
    assert "plant.hours" not in last_audits(world.lake)
    with pytest.raises(UnexplainedDifference, match=r"plant\.newest: 1 rows differ .* Not looked at: plant\.hours: "):
        AuditReport(tables=list(found.values())).raise_if_wrong()
    with pytest.raises(TwofoldError, match=r"Not looked at: plant\.hours: its rows were computed"):
        AuditReport(tables=[found["plant.hours"], found["plant.kept"]]).raise_if_wrong()


@pytest.mark.spark
def test_what_a_late_record_changes_is_no_drift(world: World) -> None:
    world.append({"readings": [reading("a", 6.5, 40), reading("b", 72, 1)]})
    world.maintain(["hours", "kept"])
    found = look(world, "hours")
    assert (found.unexplained, found.excused) == (0, 1)
    world.reconcile(["hours"])
    assert look(world, "hours").differing == 0
    # Dropped by declaration: it differs from then on, and is not reported.
    for _ in range(2):
        found = look(world, "kept")
        assert (found.unexplained, found.excused) == (0, 1)


@pytest.mark.spark
def test_what_the_stream_has_still_to_read_is_no_drift(world: World) -> None:
    world.append({"readings": [reading("a", 80, 9)]})
    found = look(world, "newest")
    assert (found.unexplained, found.excused) == (0, 1)
    world.maintain(["newest"])
    assert look(world, "newest").differing == 0


@pytest.mark.spark
def test_every_record_is_an_event_or_in_quarantine(world: World) -> None:
    [topic] = topics_of(world)
    [partition] = topic.partitions
    assert (partition.start, partition.end, partition.events, partition.quarantined) == (0, 49, 48, 1)
    assert (topic.faults, topic.waiting) == ([], None)
    world.lake.open("plant.readings").delete(f"{OFFSET} = 30")
    [topic] = topics_of(world)
    assert topic.faults == ["plant.readings, partition 0, [0, 49): 1 missing offsets"]
    with pytest.raises(UnexplainedDifference, match="1 missing offsets"):
        AuditReport(topics=[topic]).raise_if_wrong()
    assert recorded(world.lake) == [(TOPIC, "audit_offsets", 49, 0, 1), (TOPIC, "audit_offsets", 49, 1, 1)]


@pytest.mark.spark
def test_what_transactions_fill_is_not_missing_and_what_the_log_has_is(
    seven_records: World, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = TwoCopies.of_world(seven_records.copied_to(settings), tmp_path / "archive", monkeypatch)
    monkeypatch.setattr("twofold.infra.kafka.topic_admin.offsets", copies.offsets)
    world = copies.world
    assert topics_of(world)[0].faults == []
    world.lake.open(TOPIC).delete(f"{OFFSET} IN (1, 4, 5)")
    copies.served = [(offset, record) for offset, record in copies.served if offset != 5]
    copies.markers = [(5, 6)]
    [topic] = topics_of(world)
    assert topic.faults == ["plant.readings, partition 0, [0, 7): 2 missing offsets"], "the log has them"
    assert sum(p.in_transactions for p in topic.partitions) == 1

    # It is known from then on, also where the log is not asked.
    monkeypatch.setattr("twofold.batch.audit.table_audit.explain_missing", lambda *_: False)
    [topic] = topics_of(world)
    assert [(p.missing, p.in_transactions) for p in topic.partitions] == [(2, 1)]
    assert missing(world.lake, world.registry.topics[TOPIC]) == {0: [(1, 2), (4, 5)]}
