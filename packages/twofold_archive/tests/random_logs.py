"""Random logs of one partition, and what a consumer of committed records sees of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from hypothesis import strategies as st
from kafka.record import MemoryRecords

from packages.twofold_archive.tests.archived_logs import (
    ABORT,
    COMMIT,
    NONE,
    NOON_MS,
    ZSTD,
    Batch,
    Record,
    Stored,
    marker,
    stored,
)

Row = tuple[bytes | None, bytes | None, int, int, int, list[tuple[str, bytes | None]]]

_TEXT = st.text("abcdefghijklmnopqrstuvwxyzäß✓", max_size=5)
_BYTES = st.none() | st.binary(max_size=12) | st.sampled_from([b"", b"x" * 200, b"y" * 5_000])
_RECORDS = st.builds(
    Record,
    key=_BYTES,
    value=_BYTES,
    timestamp=st.integers(NOON_MS - 10**6, NOON_MS + 10**6),
    headers=st.lists(st.tuples(_TEXT, st.none() | st.binary(max_size=3)), max_size=3),
)


@dataclass(frozen=True, kw_only=True)
class Log:
    """Segments in order, the rows that a consumer of committed records gets, and the frontier."""

    segments: list[Stored]
    rows: list[Row]
    frontier: int


def rows_of(batch: bytes) -> Iterator[Row]:
    """The records of a batch as kafka-python reads them."""
    for record in MemoryRecords(batch).next_batch():
        headers = [(name, value) for name, value in record.headers]
        yield record.key, record.value, record.offset, record.timestamp, record.timestamp_type, headers


@st.composite
def random_logs(draw: st.DrawFn) -> Log:
    """Batches of every codec, with and without transactions of two producers, whose leaders change."""
    offset, epoch = draw(st.sampled_from([0, 1, 1000])), 0
    batches: list[bytes] = []
    kept: list[Row] = []
    open_rows: dict[int, list[Row]] = {}
    began: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    unfinished: list[list[int]] = []  # after each batch
    for _ in range(draw(st.integers(1, 12))):
        epoch += draw(st.sampled_from([0, 0, 0, 1, 3]))
        producer = draw(st.sampled_from([-1, -1, 5, 2**40]))
        if producer in began and draw(st.booleans()):
            kind = draw(st.sampled_from([ABORT, COMMIT]))
            batches.append(marker(offset, producer, kind, epoch))
            first, rows = began.pop(producer), open_rows.pop(producer)
            if kind == COMMIT:
                kept += rows
            else:
                aborted.append((producer, first, offset))
            offset += 1
            unfinished.append(sorted(began.values()))
            continue
        batch = Batch(
            base=offset,
            records=draw(st.lists(_RECORDS, min_size=1, max_size=5)),
            codec=draw(st.integers(NONE, ZSTD)),
            epoch=epoch,
            producer=producer,
            is_transactional=producer >= 0,
            append_time=draw(st.none() | st.just(NOON_MS + 5)),
        )
        batches.append(batch.encode())
        rows = list(rows_of(batches[-1]))
        if producer >= 0:
            began.setdefault(producer, offset)
            open_rows.setdefault(producer, []).extend(rows)
        else:
            kept += rows
        offset = batch.last + 1
        unfinished.append(sorted(began.values()))
    frontier = min([offset, *began.values()])
    cuts = sorted(draw(st.sets(st.integers(1, len(batches) - 1), max_size=3))) if len(batches) > 1 else []
    return Log(
        segments=_segments(draw, batches, cuts, aborted, unfinished),
        rows=sorted((row for row in kept if row[2] < frontier), key=lambda row: row[2]),
        frontier=frontier,
    )


def _segments(
    draw: st.DrawFn,
    batches: list[bytes],
    cuts: list[int],
    aborted: list[tuple[int, int, int]],
    unfinished: list[list[int]],
) -> list[Stored]:
    segments = []
    every = draw(st.sampled_from([0, 100, 4096]))
    for number, (low, high) in enumerate(zip([0, *cuts], [*cuts, len(batches)], strict=True)):
        bare = stored(batches[low:high]).segment
        here = [a for a in aborted if bare.start <= a[2] < bare.end]
        made = stored(batches[low:high], aborted=here, unfinished=unfinished[high - 1], index_every=every)
        segments.append(replace(made, segment=replace(made.segment, id=UUID(int=number))))
    return segments
