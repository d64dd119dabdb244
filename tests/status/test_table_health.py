"""The one word for the health of a topic or table, and how long changes wait for it because of whom."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

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
from twofold.infra.capture.captured_table import CaptureState
from twofold.status.parts.outputs import OutputReport
from twofold.status.table_health import Health, Judge, Lag
from twofold.tables.refresh.events.lost_offsets import Gap


def health(name: str, **facts: Any) -> Health:
    return Judge(snapshot(**facts), CATALOG).health(name)


def test_what_works_and_is_explained_is_healthy() -> None:
    assert health(HOURS) == Health("healthy", ("written 2.0 s before", "fresh", "audited, every row is explained"))
    assert health(READINGS) == Health("healthy", ("written 2.0 s before", "no record is lost"))
    idle = [query("ingest", updated_at=NOW - timedelta(days=1)), query("hours", updated_at=NOW - timedelta(days=1))]
    assert health(HOURS, queries=idle).word == health(READINGS, queries=idle).word == "healthy", "nothing waits"


def test_an_output_whose_change_is_tried_again_makes_no_table_fail() -> None:
    waiting = OutputReport(
        table=HOURS,
        output="hook",
        kind="webhook",
        state="waits for its receiver",
        version=1,
        behind=0,
        behind_s=None,
        waiting=1,
        refused=0,
        error="1 changes wait: 500",
    )
    assert health(HOURS, outputs=[waiting]).word == "healthy"
    failed = replace(waiting, has_failed=True)
    assert health(HOURS, outputs=[failed]) == Health("failed", ("its output hook has failed: 1 changes wait: 500",))
    told = f"{HOURS}: the output hook has failed: 1 changes wait: 500"
    assert [told in snapshot(outputs=[one]).problems for one in (waiting, failed)] == [False, True]


LONG_AGO = NOW - timedelta(minutes=10)


@pytest.mark.parametrize(
    ("word", "why", "facts"),
    [
        ("failed", "its query has failed: no column", {"queries": [query("hours", error="no column")]}),
        ("failed", "audits found 1,200 rows", {"tables": [table(HOURS, audit=replace(AUDIT, unexplained=1_200))]}),
        ("degraded", "rows are visible 20 min 00 s after", {"queries": [query("hours", freshness_s=1_200.0)]}),
        ("degraded", "7 versions of its inputs wait", {"queries": [query("hours", behind=7, updated_at=LONG_AGO)]}),
        ("degraded", "the process stream-plant is FATAL", {"processes": [process("stream-plant", "FATAL")]}),
        ("degraded", "the process stream-plant is not supervised", {"processes": [process("broker")]}),
        ("unknown", "it was not computed yet", {"tables": [table(HOURS, version=None, rows=None, audit=None)]}),
        ("unknown", "the platform is down", {"processes": []}),
        ("unknown", "it was declared after the last look", {"tables": []}),
    ],
)
def test_a_table_is_as_well_as_the_worst_of_what_is_found(word: str, why: str, facts: dict[str, Any]) -> None:
    found = health(HOURS, **facts)
    assert found.word == word
    assert found.why[0].startswith(why)


@pytest.mark.parametrize(
    ("word", "why", "facts"),
    [
        ("failed", f"{READINGS}, partition 0: offsets [4, 6) are lost", {
            "gaps": [Gap(topic=READINGS, partition=0, start=4, end=6, recorded_at=NOW, why="gone")],
        }),
        ("failed", "no slot", {
            "captures": [CaptureState(topic=READINGS, table="t", state="", slot="", retained_bytes=0, fault="no slot")],
        }),
        ("degraded", "20 records wait, no micro-batch", {
            "topics": [topic(READINGS, latest=80)], "queries": [query("ingest", updated_at=LONG_AGO)],
        }),
        ("unknown", "the broker does not answer", {"topics": [topic(READINGS, latest=None)]}),
    ],
)  # fmt: skip
def test_a_topic_is_as_well_as_the_worst_of_what_is_found(word: str, why: str, facts: dict[str, Any]) -> None:
    found = health(READINGS, **facts)
    assert found.word == word
    assert found.why[0].startswith(why)


def test_the_worst_finding_comes_first_and_the_others_follow() -> None:
    found = health(HOURS, processes=[], queries=[query("hours", error="no column", freshness_s=9_999.0)])
    assert found.word == "failed"
    assert [why.split(" ")[0] for why in found.why] == ["its", "rows", "the"]


def test_a_lag_is_its_own_and_that_of_the_slowest_input() -> None:
    now = snapshot(
        topics=[topic(READINGS, latest=80)],
        queries=[query("ingest"), query("hours", behind=3, behind_s=10.0), query("days", behind=0)],
    )
    lags = Judge(now, CATALOG).lags()
    assert lags[READINGS] == Lag(2.0, 0.0, None), "20 records wait since the last micro-batch"
    assert lags[HOURS] == Lag(10.0, 2.0, READINGS)
    assert lags[DAYS] == Lag(0.0, 12.0, HOURS)
    assert lags[DAYS].total_s == 12.0
    assert lags[BROKEN] == Lag(None, 2.0, READINGS), "it never ran"


def test_nothing_waits_where_all_is_read() -> None:
    lags = Judge(snapshot(), CATALOG).lags()
    assert set(lags.values()) == {Lag(0.0, 0.0, None)}
