"""What the broker's records make of segments: copied ones only, one per offset, the latest leader's word."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from packages.twofold_archive.tests.archived_logs import TOPIC, TOPIC_ID
from twofold_archive.format.archive_errors import UnknownMetadata
from twofold_archive.format.segment import Epochs, Segment
from twofold_archive.format.segment_metadata import (
    Announced,
    PartitionDeleted,
    Record,
    State,
    Updated,
    parse,
)
from twofold_archive.format.storage_layout import LocalTieredStorage
from twofold_archive.segment_manifest import archived, copied_segments

# Two values that a broker of Kafka 4.3.1 wrote: a segment is announced, then its copy is complete.
ANNOUNCED = bytes.fromhex(
    "01000013666c69676874732e6465706172747572657333c1c632c5f142978696c91e91590fbb00000001000dd6433725a240ce91e122d2"
    "41040b9a0000000000000000000000000000001b4a00000001000001a1fc896206000001a1fc8966340200000000000000000000000000"
    "000ffd6d000001000101"
)
COPIED = bytes.fromhex(
    "01010013666c69676874732e6465706172747572657333c1c632c5f142978696c91e91590fbb00000001000dd6433725a240ce91e122d2"
    "41040b9a0000000001000001a1fc8966a7000100"
)


def segment(start: int, end: int, epochs: Epochs, *, number: int = 0, topic_id: UUID = TOPIC_ID) -> Segment:
    return Segment(
        topic=TOPIC,
        topic_id=topic_id,
        partition=0,
        id=UUID(int=number or start * 1000 + end),
        start=start,
        end=end,
        size=100,
        max_timestamp_ms=0,
        epochs=epochs,
        copied_ms=number,
    )


def pieces(*segments: Segment) -> list[tuple[int, int, int]]:
    """(start, end, start of the segment that holds it) of what is archived."""
    found = archived(segments, {TOPIC: TOPIC_ID}).get(TOPIC, {})
    return [(piece.start, piece.end, piece.segment.start) for piece in found[0].pieces] if found else []


def history(one: Segment, *states: State) -> list[Record]:
    updates = [Updated(id=one.id, state=state, custom=None) for state in states]
    return [Announced(segment=one, state="copy_started"), *updates]


def test_records_of_a_real_broker_are_read() -> None:
    announced = parse(ANNOUNCED)

    assert announced == Announced(
        state="copy_started",
        segment=Segment(
            topic="flights.departures",
            topic_id=UUID("33c1c632-c5f1-4297-8696-c91e91590fbb"),
            partition=1,
            id=UUID("0dd64337-25a2-40ce-91e1-22d241040b9a"),
            start=0,
            end=6_987,
            size=1_047_917,
            max_timestamp_ms=1_795_238_224_390,
            epochs=((0, 0),),
            copied_ms=1_795_238_225_460,
            may_have_aborts=False,
        ),
    )
    assert parse(COPIED) == Updated(id=UUID("0dd64337-25a2-40ce-91e1-22d241040b9a"), state="copied", custom=None)
    assert copied_segments([parse(ANNOUNCED), parse(COPIED)]) == [announced.segment]


def test_a_file_is_where_the_plugin_of_kafka_puts_it() -> None:
    announced = parse(ANNOUNCED)
    assert isinstance(announced, Announced)

    assert LocalTieredStorage().path(announced.segment, "log") == (
        "kafka-tiered-storage/flights.departures-1-M8HGMsXxQpeGlskekVkPuw/00000000000000000000-DdZDNyWiQM6R4SLSQQQLmg.log"
    )


@pytest.mark.parametrize("length", range(len(ANNOUNCED)))
def test_a_record_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(UnknownMetadata):
        parse(ANNOUNCED[:length])


def test_a_record_of_another_kind_is_refused() -> None:
    with pytest.raises(UnknownMetadata, match="of kind 9, version 0"):
        parse(b"\x01\x09\x00")


def test_only_segments_that_are_copied_and_not_deleted_count() -> None:
    whole, half, going, gone = (segment(start, start + 10, ((0, start),)) for start in (0, 10, 20, 30))
    records = [
        *history(whole, "copied"),
        *history(half),
        *history(going, "copied", "delete_started"),
        *history(gone, "copied", "delete_started", "deleted"),
    ]

    assert copied_segments(records) == [whole]
    assert copied_segments([*records, PartitionDeleted(topic_id=TOPIC_ID, partition=1)]) == [whole]
    assert copied_segments([*records, PartitionDeleted(topic_id=TOPIC_ID, partition=0)]) == []


def test_what_the_plugin_remembers_of_a_copy_comes_with_its_end() -> None:
    one = segment(0, 10, ((0, 0),))

    [copied] = copied_segments([*history(one), Updated(id=one.id, state="copied", custom=b"here")])

    assert copied == replace(one, custom=b"here")


def test_segments_of_a_deleted_topic_of_the_same_name_do_not_count() -> None:
    assert pieces(segment(0, 10, ((0, 0),), topic_id=UUID(int=1)), segment(0, 5, ((0, 0),))) == [(0, 5, 0)]
    assert pieces(segment(0, 10, ((0, 0),), topic_id=UUID(int=1))) == []


def test_a_segment_that_was_copied_twice_counts_once() -> None:
    first, second = segment(0, 10, ((0, 0),), number=1), segment(0, 10, ((0, 0),), number=2)

    found = archived([second, first, segment(10, 20, ((0, 10),))], {TOPIC: TOPIC_ID})[TOPIC][0]

    assert [piece.segment.id.int for piece in found.pieces] == [2, 10_020]


def test_overlapping_copies_are_read_once_each_offset() -> None:
    assert pieces(segment(0, 10, ((0, 0),)), segment(5, 20, ((0, 5),)), segment(7, 9, ((0, 7),))) == [
        (0, 10, 0),
        (10, 20, 5),
    ]


def test_the_word_of_the_later_leader_counts_where_it_began() -> None:
    # The leader of epoch 5 copied up to 200; that of epoch 6 was elected with the log up to 150 and wrote on there.
    before, after = segment(100, 200, ((5, 100),)), segment(140, 250, ((5, 140), (6, 150)))

    assert pieces(before, after) == [(100, 150, 100), (150, 250, 140)]
    assert pieces(segment(150, 250, ((6, 150),)), before) == [(100, 150, 100), (150, 250, 150)]


def test_an_epoch_that_a_later_leader_never_saw_does_not_count_at_all() -> None:
    old, lost, new = segment(0, 100, ((1, 0),)), segment(100, 180, ((2, 100),)), segment(90, 200, ((1, 90), (3, 95)))

    assert pieces(old, lost, new) == [(0, 95, 0), (95, 200, 90)]


def test_a_hole_stays_a_hole() -> None:
    found = archived([segment(0, 10, ((0, 0),)), segment(15, 20, ((0, 15),))], {TOPIC: TOPIC_ID})[TOPIC][0]

    assert found.holes() == [(10, 15)]
    assert [piece.start for piece in found.run(3)] == [0]
    assert [piece.start for piece in found.run(15)] == [15]
    assert found.run(12) == ()


def test_the_segment_of_an_offset_is_named_and_read_once() -> None:
    before, after = segment(100, 200, ((5, 100),)), segment(140, 250, ((5, 140), (6, 150)))
    found = archived([before, after], {TOPIC: TOPIC_ID})[TOPIC][0]

    assert found.segment_of(149) == before
    assert found.segment_of(150) == after
    assert found.segment_of(250) is None
    assert found.bytes == 200
