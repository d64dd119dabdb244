"""The one word for the health of a topic or table, and how long changes wait for it because of whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.status.troubled_platform import TROUBLED
from twofold.features.page.tests.small_platform import (
    AUDIT,
    BROKEN,
    CATALOG,
    DAYS,
    HOURS,
    NOW,
    READINGS,
    process,
    query,
    snapshot,
    table,
    topic,
)
from twofold.status.catalog import Entry
from twofold.status.parts.snapshot import Fault, Snapshot
from twofold.status.symptoms.diagnosis import symptoms_of
from twofold.status.table_health import Health, Lag, healths_of


def healths(now: Snapshot, catalog: Mapping[str, Entry] = CATALOG) -> Mapping[str, Health]:
    return healths_of(now, symptoms_of(now), catalog)


def test_what_works_and_is_explained_is_healthy() -> None:
    well = healths(snapshot())
    why = {name: (well[name].word, well[name].why) for name in (HOURS, READINGS)}
    assert why[HOURS] == ("healthy", ["written 2.0 s before", "fresh", "audited, every row is explained"])
    assert why[READINGS] == ("healthy", ["written 2.0 s before", "no record is lost"])
    idle = [query("ingest", updated_at=NOW - timedelta(days=1)), query("hours", updated_at=NOW - timedelta(days=1))]
    assert [healths(snapshot(queries=idle))[name].word for name in (HOURS, READINGS)] == ["healthy"] * 2


@pytest.mark.parametrize(
    ("word", "why", "facts"),
    [
        ("failed", f"{HOURS} has failed: no column", {"queries": [query("hours", error="no column")]}),
        ("failed", "audits found 1,200 rows", {"tables": [table(HOURS, audit=replace(AUDIT, unexplained=1_200))]}),
        ("degraded", "rows are visible 20 min 00 s after", {"queries": [query("hours", freshness_s=1_200.0)]}),
        ("degraded", "stream-plant is FATAL", {"processes": [process("stream-plant", "FATAL"), process("broker")]}),
        ("degraded", "broker: it does not answer", {"faults": {"broker": Fault("it does not answer")}}),
        ("unknown", "it was not computed yet", {"tables": [table(HOURS, version=None, rows=None, audit=None)]}),
        ("unknown", "The platform is down", {"processes": []}),
        ("unknown", "it was declared after the last look", {"tables": []}),
    ],
)
def test_a_table_is_as_well_as_the_worst_of_its_symptoms(word: str, why: str, facts: dict[str, Any]) -> None:
    found = healths(snapshot(**facts))[HOURS]
    assert found.word == word
    assert found.why[0].startswith(why)


def test_all_topics_of_a_domain_are_as_well_as_what_ingests_them() -> None:
    other = "plant.other"
    catalog = {**CATALOG, other: replace(CATALOG[READINGS], name=other)}
    for query_of_all, word in ((query("ingest", error="no broker"), "failed"), (query("hours", error="x"), "healthy")):
        now = snapshot(topics=[topic(READINGS), topic(other)], queries=[query_of_all], gaps=[])
        assert [healths(now, catalog)[name].word for name in (READINGS, other)] == [word] * 2


def test_what_is_wrong_with_another_is_none_of_its_symptoms() -> None:
    words = healths(TROUBLED)
    assert words[HOURS].word == words[READINGS].word == "failed"
    assert [f"{why.split(' ')[0]} {len(words[HOURS].why)}" for why in words[HOURS].why] == [
        "audits 3", f"{HOURS} 3", "broker 3",
    ]  # fmt: skip


def test_a_lag_is_its_own_and_that_of_the_slowest_input() -> None:
    now = snapshot(
        topics=[topic(READINGS, latest=80)],
        queries=[query("ingest"), query("hours", behind=3, behind_s=10.0), query("days", behind=0)],
    )
    lags = {name: health.lag for name, health in healths(now).items()}
    assert lags[READINGS] == Lag(2.0, 0.0, None), "20 records wait since the last micro-batch"
    assert lags[HOURS] == Lag(10.0, 2.0, READINGS)
    assert lags[DAYS] == Lag(0.0, 12.0, HOURS)
    assert lags[DAYS].total_s == 12.0
    assert lags[BROKEN] == Lag(None, 2.0, READINGS), "it never ran"


def test_nothing_waits_where_all_is_read() -> None:
    assert {health.lag for health in healths(snapshot()).values()} == {Lag(0.0, 0.0, None)}
