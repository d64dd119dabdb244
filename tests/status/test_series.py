"""Numbers over time count each commit once, and are those of the newest look; a time without a look is a gap."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from tests.plant import plant
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.status.fold import Facts
from twofold.status.parts import series
from twofold.status.parts.series import SPANS, SeriesPoint, SeriesUpdate, Span, class_of, merged
from twofold.status.store import Store, TableVersion
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET
from twofold.tables.refresh.events.lateness import BOUNDS_MS, lateness_counts
from twofold.tables.refresh.events.record_decoder import events_schema

HOURS, READINGS = "plant.hours", "plant.readings"
SIX_HOURS, THREE_DAYS, _ = SPANS
SCHEMA = pa.schema([("sensor", pa.string()), ("n", pa.int64())])


def commit(lake: Lake, number: int, rows: int, **info: Any) -> None:
    lake.ensure(HOURS, SCHEMA, statistics=[])
    table = pa.table({"sensor": ["a"] * rows, "n": list(range(rows))}, schema=SCHEMA)
    Writer(lake, HOURS).append(table, CommitTag(app="test", version=number, info=info))


def points(lake: Lake, known: dict[str, TableVersion] | None = None, name: str = HOURS) -> list[SeriesPoint]:
    update = Facts(lake, known).series_update(name, SeriesPoint())
    return [point for _, point in update.commits] if update else []


def look(lake: Lake, store: Store, sample: SeriesPoint | None = None) -> None:
    """Looks at the table and saves what is new."""
    facts = Facts(lake, store.table_versions())
    update = facts.series_update(HOURS, sample or SeriesPoint(rows=facts.rows(HOURS)))
    assert update is not None
    assert store.save(facts.table_versions, updates={HOURS: update})


def total(store: Store, span: Span = SIX_HOURS) -> SeriesPoint:
    return merged(point for _, point in store.series(HOURS, span, datetime.now(UTC)) if point)


def test_a_commit_says_who_changed_rows_and_how_fresh_they_were(lake: Lake) -> None:
    commit(lake, 1, 3, cause="stream", appended_ms=0)
    commit(lake, 2, 2, cause="stream")
    commit(lake, 3, 5, cause="late", run="late-1")
    commit(lake, 4, 1, cause="what no writer of ours says")
    [first, *rest] = points(lake)
    (logged,) = lake.commits(HOURS, 0, 1)
    assert first == SeriesPoint(written=3, freshness_s=logged.timestamp_ms / 1_000)
    assert rest == [SeriesPoint(written=2), SeriesPoint(corrected=5)]


def test_each_commit_is_counted_once_however_often_it_is_looked_at(settings: Settings, lake: Lake) -> None:
    store = Store(settings)
    for number in range(1, 9):
        commit(lake, number, number, **({"cause": "stream"} if number % 2 else {"cause": "late", "run": "late-1"}))
        if number in (1, 4, 5):
            look(lake, store)
            look(lake, store)
    look(lake, store)
    whole = total(store)
    assert (whole.written, whole.corrected, whole.rows) == (1 + 3 + 5 + 7, 2 + 4 + 6 + 8, 36)
    assert [total(store, span).written for span in SPANS] == [16, 16, 16]


def test_what_two_processes_look_at_together_is_counted_once(settings: Settings, lake: Lake) -> None:
    store = Store(settings)
    commit(lake, 1, 3, cause="stream")
    look(lake, store)
    commit(lake, 2, 4, cause="stream")
    slow = Facts(lake, store.table_versions())
    update = slow.series_update(HOURS, SeriesPoint(rows=7))
    look(lake, store)
    assert update is not None
    store.save(slow.table_versions, updates={HOURS: update})
    assert total(store).written == 7


def test_looks_keep_the_newest_sample_and_the_greatest_lag(settings: Settings) -> None:
    store = Store(settings)
    for lag, ingested in ((3, 10), (9, 20), (0, 40)):
        sample = SeriesPoint(lag=lag, ingested=ingested)
        store.save({HOURS: TableVersion(1, "x")}, updates={HOURS: SeriesUpdate(after=1, commits=[], sample=sample)})
    assert (total(store).lag, total(store).ingested) == (9, 40)


def test_a_bucket_without_a_look_is_a_gap_and_old_ones_are_forgotten(settings: Settings) -> None:
    store, now = Store(settings), datetime.now(UTC)
    ago = {name: int((now - timedelta(hours=hours)).timestamp() * 1_000) for name, hours in (("a", 2), ("b", 30))}
    commits = [(ago["b"], SeriesPoint(written=1)), (ago["a"], SeriesPoint(written=2))]
    store.save({}, updates={HOURS: SeriesUpdate(after=None, commits=commits, sample=SeriesPoint(rows=5))})
    buckets = store.series(HOURS, SIX_HOURS, now)
    assert len(buckets) == SIX_HOURS.buckets
    assert {n for n, (_, point) in enumerate(buckets) if point} == {47, 71}
    assert {at - before for (before, _), (at, _) in pairwise(buckets)} == {timedelta(minutes=5)}
    assert (total(store).written, total(store, THREE_DAYS).written) == (2, 3)
    assert store.series("plant.other", SIX_HOURS, now)[0][1] is None


def test_only_the_newest_commits_of_a_long_log_are_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_LATEST_FOLDED", 2)
    for number in range(1, 5):
        commit(lake, number, number, cause="stream")
    assert [point.written for point in points(lake)] == [3, 4]
    known = {HOURS: TableVersion(1, lake.commit_digest(HOURS, 1))}
    assert [point.written for point in points(lake, known)] == [3, 4]


def come(lake: Lake, topic: Any, number: int, late: list[int | None], **info: Any) -> None:
    offsets = [None if ms == 7 else n for n, ms in enumerate(late)]  # 7: a heartbeat
    values = {LATE_BY_MS: late, OFFSET: offsets}
    rows = pa.table([pa.array(values.get(f.name, [None] * len(late)), f.type) for f in events_schema(topic)],
                    schema=events_schema(topic))  # fmt: skip
    Writer(lake, READINGS).append(rows, CommitTag(app="ingest", version=number, info=info))


def test_lateness_is_that_of_commits_or_of_the_rows_of_new_ones(lake: Lake, tmp_path: Any) -> None:
    topic = plant(tmp_path / "declared").topics[READINGS]
    lake.ensure(READINGS, events_schema(topic), statistics=[LATE_BY_MS])
    come(lake, topic, 1, [5_000], cause="ingest")
    known = {READINGS: TableVersion(1, lake.commit_digest(READINGS, 1))}
    come(lake, topic, 2, [5_000], cause="ingest", lateness={"0": 4, "1000": 1})
    come(lake, topic, 3, [-9, 999, 1_000, 7, None, 90_000_000], cause="ingest")
    come(lake, topic, 4, [7], cause="idle")
    assert merged(points(lake, known, READINGS)).lateness == {"0": 6, "1000": 2, "86400000": 1}
    assert merged(points(lake, None, READINGS)).lateness == {"0": 4, "1000": 1}, "a first look reads no rows"


def test_a_share_of_records_is_within_the_least_bounds_that_hold_so_many() -> None:
    chance = random.Random(3)
    late = [int(chance.expovariate(1 / 3_000_000)) for _ in range(500)]
    counts = lateness_counts(pa.chunked_array([late]))
    assert sum(counts.values()) == 500
    for percent in (1, 50, 95, 99, 100):
        value = sorted(late)[-(-500 * percent // 100) - 1]
        found = class_of(counts, percent)
        assert found is not None
        lower, upper = found
        assert lower <= value < (upper or value + 1)
    assert class_of({}, 50) is None
    assert class_of({BOUNDS_MS[-1]: 1}, 100) == (BOUNDS_MS[-1], None)
    assert lateness_counts(pa.chunked_array([[None, -5, 0, 999]], pa.int64())) == {0: 3}
