"""A micro-batch of few records that are large is for Spark's workers, as one of many records is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.streaming.ingest.small_domain import OTHER, READ, Domain
from tests.streaming.ingest.small_log import reading
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.infra.rows.sizes import RECORD_BYTES, REVISED, is_small
from twofold.streaming.ingest.topic_writer import TopicWriter, read_if_small

MANY = 300


@pytest.fixture
def domain(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Domain:
    domain = Domain(lake, monkeypatch)
    for log in domain.logs.values():
        log.values[0] = [reading(0)] * (3 * MANY)
    return domain


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics whose records were given to Spark's workers."""
    given: list[str] = []
    monkeypatch.setattr(TopicWriter, "take_frame", lambda self, *_: given.append(self._topic.full_name))
    return given


def measured(monkeypatch: pytest.MonkeyPatch, size: int) -> list[int]:
    """Let records be of so many bytes; gives a list that grows with each look at them."""
    looks: list[int] = []
    monkeypatch.setattr("twofold.streaming.ingest.ingest_query.size_of", lambda _: looks.append(size) or size)
    return looks


def test_bytes_count_as_records_do() -> None:
    settings = Settings(small_rows=10)
    assert [is_small(settings, records) for records in (10, 11)] == [True, False]
    assert [is_small(settings, records, REVISED) for records in (80, 81)] == [True, False]
    assert [is_small(settings, 1, record_bytes=size) for size in (RECORD_BYTES, RECORD_BYTES + 1)] == [True, False]
    assert is_small(Settings(engine="delta-rs"), 10**6, record_bytes=10**12)
    assert not is_small(Settings(engine="spark"), 1)


def test_large_records_are_not_collected(domain: Domain, workers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    looks = measured(monkeypatch, RECORD_BYTES + 1)
    domain.batch(0, MANY)
    assert sorted(workers) == sorted([READ.full_name, OTHER.full_name])
    assert len(looks) == 1


def test_records_are_as_large_as_those_before_them(
    domain: Domain, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = measured(monkeypatch, 1_000)
    for n in range(3):
        domain.batch(n * MANY, (n + 1) * MANY)
    assert (workers, len(looks)) == ([], 1)


def test_a_failure_lets_records_be_measured(domain: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = measured(monkeypatch, 1_000)
    domain.batch(0, MANY)
    with pytest.raises(MemoryError):
        domain.ingest._batch(_Unreadable(), 0)  # type: ignore[arg-type]
    domain.batch(MANY, 2 * MANY)
    assert len(looks) == 2


class _Unreadable:
    def toArrow(self) -> pa.Table:
        raise MemoryError


def test_a_frame_is_collected_where_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    class Frame:
        def toArrow(self) -> str:
            return "rows"

    frame: Any = Frame()
    for size, rows in ((RECORD_BYTES, "rows"), (RECORD_BYTES + 1, None)):
        monkeypatch.setattr("twofold.streaming.ingest.topic_writer.size_of", lambda _, size=size: size)
        assert read_if_small(Settings(), frame, 10) == rows
    assert read_if_small(Settings(small_rows=9), frame, 10) is None
