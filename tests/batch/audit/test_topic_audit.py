"""An audit of a topic finds any record that one side lacks or has otherwise; its certificate needs no log for that."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.batch.audit.two_copies import APPENDED_MS, TOPIC, TwoCopies, recorded
from tests.plant import reading
from twofold.batch.audit import topic_certificates
from twofold.batch.audit.archive_vs_broker import LogCopies
from twofold.batch.audit.mismatches import Mismatch, find_mismatches
from twofold.batch.audit.topic_audit import TopicReport, check_certificate, compare_with_log
from twofold.batch.audit.topic_certificates import read_certificate
from twofold.batch.offset_selection import OffsetSelection
from twofold.infra.errors import BadArgument, UnexplainedDifference
from twofold.tables.refresh.events import lost_offsets
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.spark


@pytest.fixture
def copies(seven_records: World, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoCopies:
    """Offsets 0 to 6 of which 3 is broken, in blocks of four."""
    monkeypatch.setattr(topic_certificates, "BLOCK", 4)
    return TwoCopies.of_world(seven_records.copied_to(settings), tmp_path / "archive", monkeypatch)


@pytest.fixture
def world(copies: TwoCopies) -> World:
    return copies.world


def audited(copies: TwoCopies, span: OffsetSelection | None = None) -> TopicReport:
    topic = copies.world.registry.topics[TOPIC]
    return compare_with_log(copies.platform, topic, copies.log, span or OffsetSelection())


def is_certified(copies: TwoCopies) -> bool:
    return read_certificate(copies.world.lake, copies.world.registry.topics[TOPIC]) is not None


def checked(world: World, version: int | None = None) -> TopicReport:
    platform = Platform(world.spark, world.lake, world.registry)
    return check_certificate(platform, world.registry.topics[TOPIC], version)


def test_what_was_ingested_is_what_the_log_gives(copies: TwoCopies) -> None:
    report = audited(copies)
    assert (report.faults, report.records, report.blocks) == ([], 7, 2)
    assert report.sides == LogCopies(
        archive_alone=2, both=3, broker_alone=2, unlike=[], in_transactions=0, lost=0, missing=[]
    )
    assert copies.fetched == [{0: (5, 7)}, {0: (2, 5)}], "the broker was asked for what it does not have at hand"
    assert is_certified(copies)
    assert recorded(copies.world.lake) == [(TOPIC, "audit_log", 7, 0, 1)]


def test_a_changed_archived_record_with_a_right_checksum_is_found(copies: TwoCopies) -> None:
    copies.change_archived(2, value=reading("b", 2, 9))
    report = audited(copies)
    assert report.sides
    assert list(report.sides.unlike) == [Mismatch(partition=0, start=0, end=4, archive=2, broker=2)]
    assert list(report.differing) == [(0, 0, 4)]
    assert not is_certified(copies)
    with pytest.raises(UnexplainedDifference, match="archive and broker have other records in partition 0"):
        report.raise_if_wrong()


@pytest.mark.parametrize("change", [{"key": b"another"}, {"timestamp": APPENDED_MS}, {"headers": [("h", b"x")]}])
def test_a_change_of_what_events_do_not_hold_is_found_between_the_copies(
    copies: TwoCopies, change: dict[str, Any]
) -> None:
    both = {0: [(2, 5)]}
    assert find_mismatches(*copies.log.copies(TOPIC, both)) == []
    copies.change_archived(2, **change)
    assert find_mismatches(*copies.log.copies(TOPIC, both)) == [
        Mismatch(partition=0, start=0, end=4, archive=2, broker=2)
    ]


@pytest.mark.parametrize(("offset", "times", "block"), [(3, 0, (0, 4, 2, 1)), (4, 2, (4, 8, 1, 2))])
def test_a_record_that_one_copy_lacks_or_has_twice_is_found(
    copies: TwoCopies, offset: int, times: int, block: tuple[int, int, int, int]
) -> None:
    record = dict(copies.served)[offset]
    copies.served = [(o, r) for o, r in copies.served if o != offset] + [(offset, record)] * times
    report = audited(copies)
    assert report.sides
    [found] = report.sides.unlike
    assert (found.start, found.end, found.archive, found.broker) == block
    told = f"partition 0 [{block[0]}, {block[1]}): {block[2]} records in the archive, {block[3]} on the broker"
    assert told in report.faults[0]


def lose(copies: TwoCopies, offset: int) -> None:
    """Let neither the log nor the tables have a record."""
    copies.served = [(o, record) for o, record in copies.served if o != offset]
    DeltaTable(copies.world.lake.uri(TOPIC)).delete(f"_offset = {offset}")


def test_an_offset_that_is_nowhere_is_missing(copies: TwoCopies) -> None:
    lose(copies, 6)
    lose(copies, 5)
    report = audited(copies)
    assert (list(report.differing), report.records) == ([], 5)
    assert report.sides
    assert (report.sides.broker_alone, list(report.sides.missing)) == (0, [(0, 5, 7)])
    assert not is_certified(copies)
    with pytest.raises(UnexplainedDifference, match=re.escape("no record has the offsets of partition 0 [5, 7)")):
        report.raise_if_wrong()


def test_an_offset_that_a_transaction_fills_is_not_missing(copies: TwoCopies) -> None:
    lose(copies, 5)
    copies.markers = [(5, 6)]
    report = audited(copies)
    assert report.sides
    assert (report.passed, report.sides.in_transactions, report.sides.broker_alone) == (True, 1, 1)
    assert is_certified(copies)


def test_a_lost_offset_is_missing_until_acknowledged(copies: TwoCopies) -> None:
    lose(copies, 5)
    gap = lost_offsets.Gap(topic=TOPIC, partition=0, start=5, end=6, recorded_at=datetime.now(UTC), why="a test")
    lost_offsets.record(copies.world.lake, [gap])
    report = audited(copies)
    assert report.sides
    assert (report.passed, list(report.sides.missing)) == (False, [(0, 5, 6)])
    lost_offsets.acknowledge(copies.world.lake, TOPIC, "known")
    report = audited(copies)
    assert report.sides
    assert (report.passed, report.sides.lost) == (True, 1)


def test_of_a_part_of_a_topic_no_certificate_is_kept(copies: TwoCopies) -> None:
    DeltaTable(copies.world.lake.uri(TOPIC)).delete("_offset = 0")
    report = audited(copies, OffsetSelection(start={0: 1}, end={0: 6}))
    assert (report.passed, report.records) == (True, 5)
    assert report.sides
    assert (report.sides.archive_alone, report.sides.both, report.sides.broker_alone) == (1, 3, 1)
    assert not is_certified(copies)
    assert recorded(copies.world.lake) == []


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
    copies: TwoCopies, table: str, damage: Callable[[DeltaTable], object], block: tuple[int, int, int]
) -> None:
    damage(DeltaTable(copies.world.lake.uri(table)))
    report = audited(copies)
    assert list(report.differing) == [block]
    named = f"1 of 2 blocks of offsets: partition 0 [{block[1]}, {block[2]})"
    with pytest.raises(UnexplainedDifference, match=re.escape(named)):
        report.raise_if_wrong()


def test_a_certificate_is_of_a_version_and_needs_no_log(copies: TwoCopies, world: World) -> None:
    with pytest.raises(BadArgument, match="There is no certificate"):
        checked(world)
    version = world.lake.version(TOPIC)
    assert audited(copies).versions[0] == version
    world.append({"readings": [reading("a", 9, 1)]})
    DeltaTable(world.lake.uri(TOPIC)).update(updates={"value": "7.0"}, predicate="_offset = 0")
    assert (checked(world).passed, checked(world, version).records) == (True, 7)


def test_a_certificate_that_is_not_of_these_rows_fails(copies: TwoCopies, world: World) -> None:
    audited(copies)
    ledger = DeltaTable(world.lake.uri(topic_certificates.CERTIFICATES))
    ledger.update(updates={"total": "'1'"}, predicate='"start" = 4')
    assert list(checked(world).differing) == [(0, 4, 8)]
