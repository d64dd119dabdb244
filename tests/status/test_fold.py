"""Facts of tables: those of an earlier version are never shown as later ones, and new commits alone are read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.plant import plant
from tests.tables.declared import a_topic
from twofold.batch.audit.topic_certificates import Block, write_certificate
from twofold.batch.ledgers.run_ledgers import CORRECTIONS, Ledgers
from twofold.batch.ledgers.run_result import Audited
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.status import fold
from twofold.status.fold import Facts
from twofold.status.store import Store, TableVersion
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.events.record_decoder import events_schema

HOUR_MS = 3_600_000  # the delay of `hours` and of `kept`
READINGS = "plant.readings"


def append(lake: Lake, name: str, number: int, schema: pa.Schema, **columns: Sequence[object]) -> None:
    rows = len(next(iter(columns.values())))
    arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type) for f in schema]
    Writer(lake, name).append(pa.table(arrays, schema=schema), CommitTag(app="test", version=number, info={}))


@pytest.fixture
def registry(lake: Lake, tmp_path: Path) -> Registry:
    """The plant, whose readings have one commit with a late record, at offset 3."""
    registry = plant(tmp_path / "declared")
    topic = registry.topics[READINGS]
    lake.ensure(READINGS, events_schema(topic), statistics=[topic.event_time, LATE_BY_MS])
    come(lake, registry, 1, late=[None, -5, HOUR_MS - 1, HOUR_MS], offsets=[0, 1, 2, 3])
    return registry


def come(lake: Lake, registry: Registry, number: int, *, late: list[int | None], offsets: list[int | None]) -> None:
    append(lake, READINGS, number, events_schema(registry.topics[READINGS]), **{LATE_BY_MS: late, OFFSET: offsets})


def both(late: int) -> dict[str, int]:
    return {"plant.hours": late, "plant.kept": late}


def known(lake: Lake, registry: Registry) -> dict[str, TableVersion]:
    facts = Facts(lake)
    facts.late(registry)
    return facts.table_versions


@pytest.fixture
def no_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("it reads the whole table")

    monkeypatch.setattr(fold, "select", refuse)


def test_a_record_is_late_from_the_delay_on_and_a_heartbeat_is_none(
    lake: Lake, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert Facts(lake).late(plant(tmp_path / "declared")) == both(0), "before its topic is there"
    registry = request.getfixturevalue("registry")
    come(lake, registry, 2, late=[9 * HOUR_MS, 9 * HOUR_MS], offsets=[4, None])
    assert Facts(lake).late(registry) == both(2), "offsets 3 and 4"


def test_new_late_records_are_counted_from_their_commits_alone(
    lake: Lake, registry: Registry, request: pytest.FixtureRequest
) -> None:
    before = known(lake, registry)
    request.getfixturevalue("no_table_is_read")
    assert Facts(lake, before).late(registry) == both(1), "not moved"
    come(lake, registry, 2, late=[0, HOUR_MS - 1], offsets=[4, 5])
    assert Facts(lake, before).late(registry) == both(1), "none of them is late"
    come(lake, registry, 3, late=[HOUR_MS], offsets=[6])
    assert Facts(lake, before).late(registry) == both(2)
    come(lake, registry, 4, late=[2 * HOUR_MS, 2 * HOUR_MS], offsets=[7, None])
    assert Facts(lake, before).late(registry) == both(3)


def test_records_that_a_rewrite_removed_are_no_longer_late(
    lake: Lake, registry: Registry, no_table_is_read: None
) -> None:
    before = {READINGS: TableVersion(1, lake.commit_digest(READINGS, 1), {"late": {str(HOUR_MS): 1}})}
    lake.open(READINGS).delete(f'"{OFFSET}" = 3')
    assert Facts(lake, before).late(registry) == both(0)


@pytest.mark.parametrize("reason", ["another history", "restored", "another delay"])
def test_what_does_not_follow_from_the_commits_is_counted_in_the_table(
    lake: Lake, registry: Registry, reason: str
) -> None:
    digest, delay = lake.commit_digest(READINGS, 1), HOUR_MS + (reason == "another delay")
    before = {READINGS: TableVersion(1, "other" if reason == "another history" else digest, {"late": {str(delay): 70}})}
    come(lake, registry, 2, late=[HOUR_MS], offsets=[4])
    if reason == "restored":
        lake.open(READINGS).restore(1)
    assert Facts(lake, before).late(registry) == both(1 if reason == "restored" else 2)


def test_facts_of_an_earlier_version_are_read_again_and_others_are_not(lake: Lake, registry: Registry) -> None:
    first = Facts(lake)
    assert (first.version(READINGS), first.rows(READINGS)) == (1, 4)
    planted = {READINGS: TableVersion(1, lake.commit_digest(READINGS, 1), {"rows": 99})}
    assert Facts(lake, planted).rows(READINGS) == 99, "it has not moved"
    assert Facts(lake, {READINGS: TableVersion(1, "another table", {"rows": 99})}).rows(READINGS) == 4
    come(lake, registry, 2, late=[0], offsets=[4])
    assert first.rows(READINGS) == 4, "one version for all that is asked of one object"
    assert Facts(lake, planted).rows(READINGS) == 5
    assert (Facts(lake).version("plant.hours"), Facts(lake).rows("plant.hours")) == (None, None)


def test_corrected_rows_are_counted_by_table(lake: Lake) -> None:
    assert Facts(lake).corrections() == {}
    Ledgers(lake).ensure()
    assert Facts(lake).corrections() == {}
    schema = pa.schema(lake.open(CORRECTIONS).schema())
    append(lake, CORRECTIONS, 1, schema, table=["plant.hours", "plant.days"])
    append(lake, CORRECTIONS, 2, schema, table=["plant.hours"])
    assert Facts(lake).corrections() == {"plant.hours": 2, "plant.days": 1}


def test_times_and_audits_come_back_from_the_store_as_they_were(settings: Settings, lake: Lake) -> None:
    at = datetime(2013, 1, 1, 12, 30, tzinfo=UTC)
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    lake.ensure("plant.hours", schema, statistics=["at", "day"])
    append(lake, "plant.hours", 1, schema, at=[at], day=[at.date()])
    Ledgers(lake).record_audit(
        Audited(
            run="audit-1", table="plant.hours", version=1, turn=0, of=1, rows=1, buckets=1, differing=0, excused=0,
            unexplained=3, seconds=0.5,
        ),
        "mark",
    )  # fmt: skip

    def read(facts: Facts) -> tuple[Any, ...]:
        return facts.bounds("plant.hours", "at"), facts.bounds("plant.hours", "day"), facts.audits()

    fresh = Facts(lake)
    times, days, audits = read(fresh)
    assert (times, days) == ((at, at), (at.date(), at.date()))
    assert audits["plant.hours"].unexplained == 3
    assert Store(settings).save(fresh.table_versions)
    assert read(Facts(lake, Store(settings).table_versions())) == (times, days, audits)


def test_the_newest_certificate_of_a_topic_is_known_with_all_its_records(lake: Lake) -> None:
    assert Facts(lake).certificates() == {}
    for run, version, records in (("c-1", 4, (3, 4)), ("c-2", 9, (10, 0, 7))):
        blocks = [
            Block(partition=0, start=n, end=n + 1, events=events, quarantined=1, total="1", xor=1)
            for n, events in enumerate(records)
        ]
        write_certificate(lake, a_topic(), run, (version, 1), blocks)
    facts = Facts(lake)
    [(name, found)] = facts.certificates().items()
    assert (name, found.version, found.records) == (READINGS, 9, 20)
    assert Facts(lake, facts.table_versions).certificates() == facts.certificates()
