"""What of a snapshot is wrong, how bad that is, and what helps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.status.troubled_platform import CAPTURE, DOWN, GAP, LONG_AGO, OUTPUT, TROUBLED, well
from twofold.features.page.tests.small_platform import AUDIT, DAYS, HOURS, NOW, READINGS, process, query, table, topic
from twofold.status.parts.snapshot import Fault
from twofold.status.symptoms.diagnosis import KINDS, symptoms_of
from twofold.status.symptoms.symptom import SEVERITIES, Symptom


def only(**facts: Any) -> Symptom:
    """The one symptom of a platform in which nothing is wrong but this."""
    [symptom] = symptoms_of(well(**facts))
    return symptom


def test_each_kind_is_found_once_where_it_is_provoked() -> None:
    symptoms = [*symptoms_of(TROUBLED), *symptoms_of(DOWN)]
    assert sorted(symptom.kind for symptom in symptoms) == sorted(kind.name for kind in KINDS)
    assert len(KINDS) >= 15
    assert symptoms_of(well()) == []


def test_the_worst_is_first_and_each_says_what_to_do() -> None:
    symptoms = symptoms_of(TROUBLED)
    ranks = [SEVERITIES.index(symptom.severity) for symptom in symptoms]
    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2}
    assert [one for one in symptoms if not one.hint or not one.command or "{" in one.hint + one.command] == []
    assert [kind.name for kind in KINDS if not kind.meaning.endswith(".") or "\n" in kind.meaning] == []


@pytest.mark.parametrize(
    ("facts", "subject", "text", "command", "restarts"),
    [
        ({"processes": [process("stream-plant"), process("broker", "BACKOFF")]},
         "broker", "broker is BACKOFF", "up", "broker"),
        ({"processes": [process("broker")]}, "stream-plant", "stream-plant is not supervised", "up", ""),
        ({"queries": [query("ingest", error="no broker")]},
         "plant.ingest", "plant.ingest has failed: no broker", "doctor", ""),
        ({"topics": [topic(READINGS, latest=80)], "queries": [query("ingest", updated_at=LONG_AGO)]}, "plant.ingest",
         "plant.ingest: 20 records wait, no micro-batch for 10 min 00 s", "status", "stream-plant"),
        ({"topics": [topic(READINGS, latest=80)], "queries": []}, "plant.ingest",
         "plant.ingest: 20 records wait, no micro-batch for 1 h 00 min", "status", "stream-plant"),
        ({"queries": [query("hours", behind=7, updated_at=LONG_AGO)]}, HOURS,
         f"{HOURS}: 7 versions of its inputs wait, no micro-batch for 10 min 00 s", "status", "stream-plant"),
        ({"queries": [query("hours", freshness_s=61.0, fresh_within_s=60.0)]}, HOURS,
         f"{HOURS}: rows are visible 1 min 01 s after the broker had them; the limit is 1 min 00 s", "status", ""),
        ({"queries": [query("hours", behind=3, behind_s=37 * 3_600.0)]}, HOURS,
         (f"{HOURS} leaves 3 versions of its inputs unread, the first for 37 h 00 min; "
         "after 3 days, or 20,000 versions, it begins from a snapshot"), "status", ""),
        ({"outputs": [replace(OUTPUT, has_failed=False, behind=10_001, behind_s=60.0)]}, DAYS,
         (f"{DAYS}: the output hook leaves 10,001 versions of the table unread, the first for 1 min 00 s; "
         "after 3 days, or 20,000 versions, it begins from a snapshot"), "status", ""),
        ({"gaps": [GAP, replace(GAP, partition=1)]}, READINGS,
         (f"{READINGS}, partition 0: offsets [4, 6) are lost: gone; "
         f"{READINGS}, partition 1: offsets [4, 6) are lost: gone"), "acknowledge", ""),
        ({"tables": [table(HOURS, audit=replace(AUDIT, unexplained=1_200))]}, HOURS,
         f"{HOURS}: audits found 1,200 rows that nothing explains", f"reconcile {HOURS} --repair", ""),
        ({"of_other_code": [HOURS]}, HOURS,
         f"{HOURS}: not all rows are known to be of the accepted code", "plan plant", ""),
        ({"captures": [CAPTURE]}, READINGS, f"{READINGS}: no slot", "doctor", ""),
    ],
)  # fmt: skip
def test_a_symptom_says_what_is_wrong_and_what_helps(
    facts: dict[str, Any], subject: str, text: str, command: str, restarts: str
) -> None:
    found = only(**facts)
    assert (found.subject, found.text, found.command, found.restarts) == (
        subject, text, f"./twofold {command}", restarts,
    )  # fmt: skip


@pytest.mark.parametrize(
    "facts",
    [
        {"processes": [replace(process(name), uptime_s=20.0) for name in ("broker", "stream-plant")],
         "queries": [query("hours", behind=7, updated_at=LONG_AGO)]},
        {"queries": [query("ingest", updated_at=LONG_AGO), query("hours", updated_at=LONG_AGO)]},
        {"topics": [topic(READINGS, latest=80)]},
        {"queries": [query("ingest", freshness_s=901.0, updated_at=LONG_AGO)]},
        {"queries": [query("hours", behind=3, behind_s=35 * 3_600.0)]},
        {"gaps": [replace(GAP, acknowledged_at=NOW)]},
        {"captures": [replace(CAPTURE, fault="")]},
        {"outputs": [replace(OUTPUT, has_failed=False)]},
        {"processes": [process("stream-plant"), process("spark", "STARTING")], "programs": {"plant": ["stream-plant"]}},
        {"tables": [table(HOURS, version=None, rows=None, audit=None)]},
    ],
    ids=["just started", "idle", "records are read", "nothing comes", "soon read", "acknowledged", "captured",
         "tried again", "broker of others", "not computed yet"],
)  # fmt: skip
def test_what_is_no_symptom(facts: dict[str, Any]) -> None:
    assert symptoms_of(well(**facts)) == []


def test_a_query_that_has_failed_is_not_stalled_too() -> None:
    assert only(queries=[query("hours", behind=7, updated_at=LONG_AGO, error="no x")]).kind == "query-failed"


def test_a_hint_of_its_own_goes_before_that_of_the_kind() -> None:
    assert only(captures=[CAPTURE]).hint == "Capture it again."
    assert only(captures=[replace(CAPTURE, hint="")]).hint.startswith(f"`./twofold recapture {READINGS}`")
    assert only(faults={"broker": Fault("no answer")}).hint == "`./twofold up` starts what does not run."


def test_a_symptom_is_the_same_while_its_numbers_change() -> None:
    first, later = (only(queries=[query("hours", freshness_s=seconds)]) for seconds in (1_000.0, 2_000.0))
    assert first == later
    assert first.text != later.text
    assert first != only(queries=[query("days", freshness_s=1_000.0)])
    hour_ago = NOW - timedelta(hours=1)
    facts: dict[str, Any] = {"queries": [query("hours", freshness_s=3_000.0)], "since": {f"slow {HOURS}": hour_ago}}
    assert (first.since, only(**facts).since) == (None, hour_ago)
