"""Segments in an object store are read as those on a disk: a real S3 server, reached over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import s3fs
from moto.server import ThreadedMotoServer

from tests.infra.archive.archived_logs import NOON_MS, TOPIC, ZSTD, Batch, Record, archive_of, stored
from tests.infra.conftest import free_port
from twofold.infra.archive.format.segment_store import Store
from twofold.infra.archive.read_plan import Archive
from twofold.infra.archive.segment_reader import read_all
from twofold.infra.errors import ArchiveUnreachable, CorruptSegment

ROOT = "s3://archive/log"
RECORDS = 5_000


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    """How to reach the server, which has the bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port())
    server.start()
    host, port = server.get_host_and_port()
    reached = {"endpoint_url": f"http://{host}:{port}", "key": "any", "secret": "any"}
    s3fs.S3FileSystem(**reached).mkdir("archive")
    yield reached
    server.stop()


@pytest.fixture(scope="module")
def archive(options: dict[str, Any]) -> Archive:
    batches = [
        Batch(base=base, records=[Record(timestamp=NOON_MS + base + i, value=b"s3" * i) for i in range(50)], codec=ZSTD)
        for base in range(0, RECORDS, 50)
    ]
    return archive_of(ROOT, [stored([batch.encode() for batch in batches], index_every=500)], options=options)


def offsets(archive: Archive, start: int, end: int) -> list[int]:
    batches = read_all(archive.plan({TOPIC: {0: (start, end)}}), archive.store, ("offset",))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_ranges_of_offsets_are_read(archive: Archive) -> None:
    assert offsets(archive, 0, RECORDS) == list(range(RECORDS))
    assert offsets(archive, 1_234, 1_240) == list(range(1_234, 1_240))


def test_a_segment_that_is_not_there_is_named(archive: Archive) -> None:
    found = archive.partitions[TOPIC][0]
    missing = replace(found.pieces[0], segment=replace(found.pieces[0].segment, partition=3))
    elsewhere = Archive(archive.store, {TOPIC: {3: replace(found, partition=3, pieces=(missing,))}})

    with pytest.raises(CorruptSegment, match=r"log-3/0{20}-\S+: it is listed, but .*snapshot is not there"):
        elsewhere.plan({TOPIC: {3: (0, 10)}})


def test_a_server_that_does_not_answer_is_worth_another_try(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    nowhere = Store(ROOT, {"endpoint_url": f"http://127.0.0.1:{free_port()}", "key": "any", "secret": "any"})

    with pytest.raises(ArchiveUnreachable, match="cannot be read") as error:
        Archive(nowhere, archive.partitions).plan({TOPIC: {0: (0, 10)}})
    assert error.value.retryable
