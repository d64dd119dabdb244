"""The index of aborted transactions, which has no checksum, is believed only as far as markers and batches agree."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from packages.twofold_archive.tests.archived_logs import (
    ABORT,
    COMMIT,
    TOPIC,
    Batch,
    Record,
    archive_of,
    marker,
    seal,
    stored,
)
from twofold_archive.format.archive_errors import CorruptSegment
from twofold_archive.format.record_batches import HEADER_BYTES
from twofold_archive.read_plan import Archive
from twofold_archive.segment_reader import read_all

PRODUCER, OTHER = 9, 8
Named = list[tuple[int, int, int]]
"""What the index names: producer, first offset, offset of the marker."""


def data(base: int, producer: int = -1) -> bytes:
    return Batch(base=base, records=[Record()], producer=producer, is_transactional=producer >= 0).encode()


def archive(root: Path, end: bytes, named: Named, *, compacted: bool = False) -> Archive:
    """A record of a transaction at 0, one of none at 1, what ends the transaction at 2, one of none at 3."""
    batches = [data(0, PRODUCER), data(1), end, data(3)]
    return archive_of(root, [stored(batches, aborted=named, index_every=0)], compacted=compacted)


def offsets(found: Archive, start: int = 0, end: int = 4) -> list[int]:
    batches = read_all(found.plan({TOPIC: {0: (start, end)}}), found.store, ["offset"])
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def ending(kind: int) -> bytes:
    return marker(2, PRODUCER, kind)


def test_what_index_and_marker_agree_on_is_read(tmp_path: Path) -> None:
    assert offsets(archive(tmp_path / "aborted", ending(ABORT), [(PRODUCER, 0, 2)])) == [1, 3]
    assert offsets(archive(tmp_path / "committed", ending(COMMIT), [])) == [0, 1, 3]


@pytest.mark.parametrize("end", [4, 1], ids=["marker in the range", "marker behind the range"])
@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (ABORT, []),
        (COMMIT, [(PRODUCER, 0, 2)]),
        (ABORT, [(PRODUCER, 0, 3)]),
        (ABORT, [(PRODUCER, 0, 1)]),
        (ABORT, [(PRODUCER, 1, 2)]),
        (ABORT, [(OTHER, 0, 2)]),
    ],
    ids=["not named", "named and committed", "ends later", "ends sooner", "begins later", "of another producer"],
)
def test_a_marker_that_says_otherwise_than_the_index_is_found(
    tmp_path: Path, kind: int, named: Named, end: int
) -> None:
    with pytest.raises(CorruptSegment, match=r"offset 2, .* it says otherwise than the index of aborted transactions"):
        offsets(archive(tmp_path, ending(kind), named), 0, end)


@pytest.mark.parametrize(
    ("kind", "named", "start"),
    [
        (COMMIT, [(OTHER, 1, 3)], 0),
        (ABORT, [(PRODUCER, 0, 2), (PRODUCER, 3, 3)], 0),
        (COMMIT, [(PRODUCER, 0, 2)], 1),
        (ABORT, [(OTHER, 0, 2)], 1),
        (ABORT, [(PRODUCER, 1, 2)], 1),
    ],
    ids=["nobody's", "one more", "committed", "of another producer", "begins at a record of none"],
)
def test_a_transaction_that_is_named_and_not_there_is_found(
    tmp_path: Path, kind: int, named: Named, start: int
) -> None:
    with pytest.raises(CorruptSegment, match="that begins or ends where none does"):
        offsets(archive(tmp_path, ending(kind), named), start)
    # Compaction may have taken its batches and markers.
    assert offsets(archive(tmp_path, ending(kind), named, compacted=True), 3)


def test_a_transaction_without_records_here_is_no_contradiction(tmp_path: Path) -> None:
    batches = [data(0, PRODUCER), marker(1, PRODUCER, ABORT), marker(2, PRODUCER, COMMIT), marker(3, OTHER, ABORT)]
    found = archive_of(tmp_path, [stored([*batches, data(4)], aborted=[(PRODUCER, 0, 1), (OTHER, 3, 3)])])
    assert offsets(found, 0, 5) == [4]


def test_a_transaction_is_not_judged_by_an_earlier_one_of_its_producer(tmp_path: Path) -> None:
    batches = [data(0, PRODUCER), marker(1, PRODUCER, ABORT), data(2, PRODUCER), marker(3, PRODUCER, COMMIT), data(4)]
    assert offsets(archive_of(tmp_path, [stored(batches, aborted=[(PRODUCER, 0, 1)])]), 0, 5) == [2, 4]


@pytest.mark.parametrize("end", [4, 1], ids=["marker in the range", "marker behind the range"])
def test_a_marker_of_an_unknown_kind_is_refused(tmp_path: Path, end: int) -> None:
    for n, forged in enumerate([ending(2), ending(-1), of_version(1)]):
        with pytest.raises(CorruptSegment, match=r"offset 2, .* it marks neither a commit nor an abort"):
            offsets(archive(tmp_path / str(n), forged, []), 0, end)


def of_version(version: int) -> bytes:
    """A marker that a later broker may write in another way."""
    end, key = ending(COMMIT), struct.pack(">hh", 0, COMMIT)
    at = end.rindex(key)
    return seal(bytearray(end[:at] + struct.pack(">hh", version, COMMIT) + end[at + len(key) :]))


@pytest.mark.parametrize("end", [4, 1], ids=["marker in the range", "marker behind the range"])
def test_a_damaged_marker_is_found_before_it_is_believed(tmp_path: Path, end: int) -> None:
    damaged = ending(ABORT)[:HEADER_BYTES] + ending(COMMIT)[HEADER_BYTES:]
    with pytest.raises(CorruptSegment, match=r"offset 2, .* its checksum"):
        offsets(archive(tmp_path, damaged, []), 0, end)
