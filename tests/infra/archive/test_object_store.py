"""Segments in an object store are read as those on a disk: a real S3 server, reached over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import s3fs
from moto.server import ThreadedMotoServer

from packages.twofold_archive.tests.archived_logs import NOON_MS, TOPIC, ZSTD, Batch, Record, partitions_of, stored
from tests.infra.conftest import free_port
from twofold.infra.archive.platform_archive import ArchiveFiles, PlatformArchive
from twofold.infra.errors import ArchiveUnreachable, CorruptSegment
from twofold_archive.format.segment_store import Store

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
def archive(options: dict[str, Any]) -> PlatformArchive:
    batches = [
        Batch(base=base, records=[Record(timestamp=NOON_MS + base + i, value=b"s3" * i) for i in range(50)], codec=ZSTD)
        for base in range(0, RECORDS, 50)
    ]
    made = stored([batch.encode() for batch in batches], index_every=500)
    for path, data in made.by_path().items():
        s3fs.S3FileSystem(**options).pipe_file(f"{ROOT}/{path}", data)
    return PlatformArchive(Store(ArchiveFiles(ROOT, options)), partitions_of([made]))


def offsets(archive: PlatformArchive, start: int, end: int) -> list[int]:
    batches = archive.read({TOPIC: {0: (start, end)}}, ["offset"])
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_ranges_of_offsets_are_read(archive: PlatformArchive) -> None:
    assert offsets(archive, 0, RECORDS) == list(range(RECORDS))
    assert offsets(archive, 1_234, 1_240) == list(range(1_234, 1_240))


def test_a_segment_that_is_not_there_is_named(archive: PlatformArchive) -> None:
    found = archive.partitions[TOPIC][0]
    missing = replace(found.pieces[0], segment=replace(found.pieces[0].segment, partition=3))
    elsewhere = PlatformArchive(archive.store, {TOPIC: {3: replace(found, partition=3, pieces=(missing,))}})

    with pytest.raises(CorruptSegment, match=r"log-3/0{20}-\S+: it is listed, but .*snapshot is not there"):
        elsewhere.plan({TOPIC: {3: (0, 10)}})


def test_a_server_that_does_not_answer_is_worth_another_try(
    archive: PlatformArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    nowhere = ArchiveFiles(ROOT, {"endpoint_url": f"http://127.0.0.1:{free_port()}", "key": "any", "secret": "any"})

    with pytest.raises(ArchiveUnreachable, match="cannot be read") as error:
        PlatformArchive(Store(nowhere), archive.partitions).plan({TOPIC: {0: (0, 10)}})
    assert error.value.retryable
