"""Whatever happens to the files of a segment is found, or leaves the rows as they were; in bounded time and memory."""

from __future__ import annotations

import pickle
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import cramjam
import pytest
from kafka.record import MemoryRecords

from packages.twofold_archive.tests.archived_logs import (
    ABORT,
    COMMIT,
    GZIP,
    LZ4,
    NONE,
    NOON_MS,
    SNAPPY,
    TOPIC,
    ZSTD,
    Batch,
    Record,
    Stored,
    archive_of,
    marker,
    seal,
    stored,
)
from tests import ROOT
from twofold_archive.format.archive_errors import CorruptSegment
from twofold_archive.format.record_columns import SCHEMA
from twofold_archive.read_plan import Archive
from twofold_archive.segment_reader import read_all

MUTATIONS = 10_000
LONGEST_S = 30  # what loops for ever takes longer; a code path that numba compiles for the first time takes some
COMPILES_S = 20  # the first time on a machine
BATCH_LENGTH, FORMAT, ATTRIBUTES, LAST_DELTA, COUNT, HEADER = 8, 16, 21, 23, 57, 61  # bytes of a batch's header


def segment(codec: int, chance: random.Random) -> Stored:
    """A few batches, some of them in transactions, one of these aborted."""
    batches, offset = [], 100
    for place in ("plain", "kept", "kept", "commit", "plain", "lost", "plain", "abort", "plain"):
        if place in ("commit", "abort"):
            batches.append(marker(offset, 7, ABORT if place == "abort" else COMMIT, epoch=offset > 105))
            lost_until, offset = offset, offset + 1
            continue
        if place == "lost":
            lost_from = offset
        records = [
            Record(
                key=chance.choice([None, b"k"]),
                value=chance.choice([None, b"", b"abc" * chance.randrange(9)]),
                timestamp=NOON_MS + offset + i,
                headers=[("h", b"x")] * chance.randrange(2),
            )
            for i in range(chance.randrange(1, 4))
        ]
        producer = 7 if place in ("kept", "lost") else -1
        batch = Batch(
            base=offset,
            records=records,
            codec=codec,
            epoch=int(offset > 105),
            producer=producer,
            is_transactional=producer >= 0,
        )
        batches.append(batch.encode())
        offset = batch.last + 1
    return stored(batches, aborted=[(7, lost_from, lost_until)], index_every=100)


def flip(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def overwrite(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    length = chance.randrange(1, 40)
    data[at : at + length] = chance.choice([bytes(length), chance.randbytes(length)])[: len(data) - at]


def truncate(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def pad(data: bytearray, chance: random.Random) -> None:
    data += chance.choice([bytes, chance.randbytes])(chance.randrange(1, 200))


def zero_the_tail(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    data[at:] = bytes(len(data) - at)


def move(data: bytearray, chance: random.Random) -> None:
    """Cut a piece out and put it elsewhere, or twice, or nowhere."""
    low, high = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    piece = bytes(data[low:high])
    if chance.random() < 0.7:
        del data[low:high]
    if chance.random() < 0.7:
        at = chance.randrange(len(data) + 1)
        data[at:at] = piece


ANY_FILE = (flip, flip, overwrite, truncate, pad, zero_the_tail, move)


def starts(log: bytes) -> list[int]:
    """Where the batches of an intact log begin."""
    found, at = [], 0
    while at < len(log):
        found.append(at)
        at += 12 + struct.unpack_from(">i", log, at + BATCH_LENGTH)[0]
    return found


def absurd_length(data: bytearray, chance: random.Random) -> None:
    length = chance.choice([-(2**31), -12, -1, 0, 1, 48, 50, 10_000, 2**26 + 1, 2**31 - 1])
    struct.pack_into(">i", data, chance.choice(starts(data)) + BATCH_LENGTH, length)


def another_format(data: bytearray, chance: random.Random) -> None:
    data[chance.choice(starts(data)) + FORMAT] = chance.choice([0, 1, 3, 255])


def batches_in_another_order(data: bytearray, chance: random.Random) -> None:
    edges = [*starts(data), len(data)]
    batches = [bytes(data[low:high]) for low, high in pairwise(edges)]
    number = chance.randrange(len(batches))
    chance.choice([batches.reverse, lambda: batches.pop(number), lambda: batches.insert(0, batches[number])])()
    data[:] = b"".join(batches)


IN_THE_LOG = (*ANY_FILE, absurd_length, another_format, batches_in_another_order)


def mutants() -> Iterator[tuple[str, str, Stored, Stored]]:
    """(what happened, to which file, the segment before, and after)."""
    chance = random.Random(5)
    intact = [segment(codec, chance) for codec in range(NONE, ZSTD + 1) for _ in range(3)]
    for _ in range(MUTATIONS):
        one = chance.choice(intact)
        kind = chance.choices(["log", *sorted(set(one.files) - {"log"})], [16, 1, 1, 1, 1])[0]
        data = bytearray(one.files[kind])
        mutation = chance.choice(IN_THE_LOG if kind == "log" else ANY_FILE)
        mutation(data, chance)
        yield mutation.__name__, kind, one, replace(one, files={**one.files, kind: bytes(data)})


def visible(one: Stored) -> list[tuple[int, int, bytes | None]]:
    """(offset, timestamp, value) of the intact segment's committed records, as kafka-python reads them."""
    edges = [*starts(one.files["log"]), len(one.files["log"])]
    batches = [MemoryRecords(one.files["log"][low:high]).next_batch() for low, high in pairwise(edges)]
    [(first, last)] = struct.iter_unpack(">10xqq8x", one.files["txnindex"])
    return [
        (record.offset, record.timestamp, record.value)
        for batch in batches
        for record in batch
        if not batch.is_control_batch and not (batch.is_transactional and first <= record.offset <= last)
    ]


def rows(archive: Archive, start: int, end: int) -> list[tuple[int, int, bytes | None]]:
    batches = read_all(archive.plan({TOPIC: {0: (start, end)}}), archive.store, SCHEMA.names)
    return [
        (row["offset"], round(row["timestamp"].timestamp() * 1000), row["value"])
        for batch in batches
        for row in batch.to_pylist()
    ]


def test_ten_thousand_mutants_are_found_or_read_as_before() -> None:
    chance, expected = random.Random(6), dict[int, list[tuple[int, int, bytes | None]]]()
    found = same = unnamed = 0
    slowest = 0.0
    for number, (mutation, kind, before, after) in enumerate(mutants()):
        start, end = before.segment.start, before.segment.end
        all_rows = expected.get(id(before)) or expected.setdefault(id(before), visible(before))
        low, high = sorted(chance.randrange(start, end + 1) for _ in range(2))
        archive = archive_of(None, [after])
        split = Archive(archive.store, archive.partitions, split_bytes=1)
        questions: list[tuple[Callable[[], object], object]] = [
            (partial(rows, archive, start, end), all_rows),
            (partial(rows, split, low, high), [row for row in all_rows if low <= row[0] < high]),
        ]
        for question, answer in questions[: 2 if number % 4 == 0 or kind != "log" else 1]:
            began = time.monotonic()
            try:
                assert question() == answer, (number, mutation, kind)
                same += 1
            except CorruptSegment as error:
                found += 1
                unnamed += str(before.segment) not in str(error)
            if number:  # the first one compiles
                slowest = max(slowest, time.monotonic() - began)
    assert slowest < LONGEST_S
    # Most damage is in the log, and all of it is in what the first question reads.
    assert found > 0.8 * MUTATIONS
    assert same > 100
    assert unnamed == 0


def test_a_batch_that_was_forged_with_a_right_checksum_is_read_or_refused() -> None:
    chance = random.Random(7)
    read = refused = 0
    for _ in range(3_000):
        one = segment(chance.randrange(NONE, ZSTD + 1), chance)
        log = bytearray(one.files["log"])
        edges = [*starts(log), len(log)]
        low, high = chance.choice(list(pairwise(edges)))
        forged = bytearray(log[low:high])
        at = chance.choice([chance.randrange(ATTRIBUTES, HEADER), chance.randrange(ATTRIBUTES, len(forged))])
        forged[at : at + 4] = chance.choice(
            [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", chance.randbytes(1)]
        )
        log[low:high] = seal(forged)
        segment_of_it = replace(one.segment, size=len(log))
        archive = archive_of(None, [replace(one.with_log(bytes(log)), segment=segment_of_it)])
        try:
            batches = read_all(archive.plan({TOPIC: {0: (100, one.segment.end)}}), archive.store, SCHEMA.names)
            assert sum(batch.num_rows for batch in batches) <= one.segment.end - 100
            read += 1
        except CorruptSegment:
            refused += 1
    assert read > 100
    assert refused > 1_000


def bomb(codec: int) -> bytes:
    """A batch of a few kB to a MB that decompresses to 256 MiB."""
    zeros = bytes(256 << 20)
    if codec == SNAPPY:
        block = cramjam.snappy.compress_raw(bytes(1 << 20))
        framed = struct.pack(">i", len(block)) + bytes(block)
        payload = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed * 256
    else:
        payload = bytes({GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec].compress(zeros))
    batch = Batch(base=0, records=[Record()]).encode()
    header = bytearray(batch[:HEADER])
    struct.pack_into(">h", header, ATTRIBUTES, codec)
    return seal(header + payload)


def many_small_records(count: int) -> bytes:
    """A batch that is as it should be, of a few MB with millions of records."""

    def varint(number: int) -> bytes:
        return bytes([number & 0x7F]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)

    content = b"".join(
        bytes([2 * (5 + len(delta)), 0, 0]) + delta + b"\x01\x01\x00"
        for delta in (varint(2 * number) for number in range(count))
    )
    header = bytearray(Batch(base=0, records=[Record()]).encode()[:HEADER])
    struct.pack_into(">h", header, ATTRIBUTES, ZSTD)
    struct.pack_into(">i", header, LAST_DELTA, count - 1)
    struct.pack_into(">i", header, COUNT, count)
    return seal(header + bytes(cramjam.zstd.compress(content)))


READER = """
import re, sys, time
from pathlib import Path
from packages.twofold_archive.tests.test_damaged_segments import rows_in_another_process
began = time.monotonic()
print(rows_in_another_process(sys.argv[1]), time.monotonic() - began)
# Of this program alone: what getrusage counts begins with the memory of the process that started it.
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024)
"""


def rows_in_another_process(root: str) -> str:
    archive = pickle.loads((Path(root) / "archive").read_bytes())
    end = archive.partitions[TOPIC][0].pieces[-1].end
    try:
        return str(sum(b.num_rows for b in read_all(archive.plan({TOPIC: {0: (0, end)}}), archive.store, SCHEMA.names)))
    except CorruptSegment as error:
        return error.message.replace(" ", "_")


@pytest.mark.parametrize(
    ("batch", "outcome"),
    [
        (partial(bomb, GZIP), "decompressed_it_is_larger_than_the_67108864_bytes"),
        (partial(bomb, SNAPPY), "decompressed_it_is_larger_than_the_67108864_bytes"),
        (partial(bomb, LZ4), "decompressed_it_is_larger_than_the_67108864_bytes"),
        (partial(bomb, ZSTD), "decompressed_it_is_larger_than_the_67108864_bytes"),
        (partial(many_small_records, 2_000_000), "2000000"),
    ],
    ids=["gzip", "snappy", "lz4", "zstd", "many small records"],
)
def test_a_batch_that_expands_takes_neither_long_nor_much_memory(
    batch: Callable[[], bytes], outcome: str, tmp_path: Path
) -> None:
    (tmp_path / "archive").write_bytes(pickle.dumps(archive_of(tmp_path, [stored([batch()])])))

    ran = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )

    [said, seconds], [bytes_used] = (line.split() for line in ran.stdout.splitlines())
    assert outcome in said
    assert float(seconds) < LONGEST_S + COMPILES_S
    assert int(bytes_used) < 512 << 20
