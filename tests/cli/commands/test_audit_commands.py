"""What `audit` and `certify` print, and when they fail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Cli
from twofold.batch.audit.completeness import Certificate, Coverage, TopicIn
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events import lost_offsets
from twofold.tables.refresh.events.lost_offsets import Gap

if TYPE_CHECKING:
    from twofold.batch.audit.table_audit import AuditReport

WHOLE = Coverage(
    topic="flights.departures",
    partition=2,
    start=0,
    end=12,
    events=11,
    quarantined=1,
    missing=0,
    repeated=0,
    astray=0,
)
TORN = Coverage(
    topic="flights.departures",
    partition=2,
    start=0,
    end=12,
    events=9,
    quarantined=1,
    missing=2,
    repeated=0,
    astray=0,
)


def certificate(*partitions: Coverage) -> Certificate:
    topic = TopicIn(topic="flights.departures", version=7, duplicates=3, partitions=partitions)
    return Certificate(
        table="flights.delays_by_hour",
        version=5,
        rows=40,
        fingerprint="f00d",
        inputs={"flights.departures": 7},
        topics=[topic],
    )


@pytest.fixture
def certified(monkeypatch: pytest.MonkeyPatch) -> dict[str, Certificate]:
    """What `certify` finds, to be set by the test."""
    found = {"is": certificate(WHOLE)}
    monkeypatch.setattr("twofold.batch.audit.completeness.certify", lambda *_: found["is"])
    return found


@pytest.mark.usefixtures("certified")
def test_a_certificate_shows_each_partition_and_what_was_read(cli: Cli) -> None:
    ran = cli("certify", "delays_by_hour")
    assert ran.code == 0
    assert "flights.delays_by_hour, version 5: 40 rows" in ran.out
    [line] = [line for line in ran.out.splitlines() if line.strip().startswith("flights.departures  ")]
    assert line.split() == ["flights.departures", "2", "[0,", "12)", "11", "1", "0", "0", "yes"]
    assert "Included:  flights.departures up to version 7. Definition f00d." in ran.out
    assert "3 events repeat another one" in ran.out


def test_a_certificate_of_a_torn_log_fails(cli: Cli, certified: dict[str, Certificate]) -> None:
    certified["is"] = certificate(TORN)
    ran = cli("certify", "delays_by_hour")
    assert ran.code == 1
    assert "flights.departures, partition 2, [0, 12): 2 missing offsets" in ran.err
    told = cli("certify", "delays_by_hour", "--json")
    assert (told.code, told.document["is_complete"]) == (0, False)
    assert told.document["topics"][0]["partitions"][0]["missing"] == 2


def test_an_audit_that_finds_damage_prints_it_and_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.batch.audit.table_audit import AuditedTopic, AuditReport
    from twofold.batch.ledgers.run_result import Audited

    asked: dict[str, object] = {}

    def audit(_settings: Settings, tables: list[str], _logs: object, *, share: float) -> AuditReport:
        asked.update(tables=tables, share=share)
        table = Audited(
            table="flights.delays_by_hour",
            run="audit-1",
            turn=3,
            of=20,
            rows=97,
            buckets=40,
            differing=1,
            unexplained=1,
        )
        return AuditReport(
            tables=[table], topics=[AuditedTopic(topic="flights.departures", partitions=[WHOLE], waiting=None)]
        )

    monkeypatch.setattr("twofold.batch.audit.table_audit.audit", audit)
    ran = cli("audit", "delays_by_hour", "--all")
    assert asked == {"tables": ["flights.delays_by_hour"], "share": 1.0}
    assert ran.code == 1
    assert "4 of 20" in ran.out
    assert "No broker answered" in ran.out
    assert "flights.delays_by_hour: 1 rows differ and nothing touched them" in ran.err
    told = cli("audit", "delays_by_hour", "--all", "--json")
    assert (told.code, told.document["passed"]) == (0, False)
    assert told.document["tables"][0]["unexplained"] == 1


def test_a_table_that_an_audit_skipped_is_named_and_fails_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.batch.audit.table_audit import AuditReport
    from twofold.batch.ledgers.run_result import Audited

    seen = Audited(table="flights.delays_by_hour", run="audit-1", turn=0, of=1, rows=97)
    why = "flights.flights: its rows were computed by the definition a."
    changed = Audited(table="flights.flights", run="audit-2", turn=0, of=1, skipped=why)
    monkeypatch.setattr("twofold.batch.audit.table_audit.audit", lambda *_, **__: AuditReport(tables=[seen, changed]))
    ran = cli("audit")
    assert ran.code == 1
    assert "Not looked at: flights.flights: its rows were computed by the definition a." in ran.err
    assert "97" in ran.out
    assert "skipped" in ran.out
    assert (cli("audit", "--json").document["passed"], cli("audit", "--json").code) == (False, 0)


def test_an_audit_of_a_topic_fails_where_two_copies_differ(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.batch.audit.archive_vs_broker import LogCopies
    from twofold.batch.audit.mismatches import Mismatch
    from twofold.batch.audit.table_audit import AuditReport
    from twofold.batch.audit.topic_audit import TopicReport
    from twofold.batch.offset_selection import OffsetSelection

    asked: list[object] = []

    def audit(
        _settings: Settings, _tables: list[str], logs: dict[str, OffsetSelection], *, share: float
    ) -> AuditReport:
        [(topic, span)] = logs.items()
        asked.append((topic, span))
        unlike = [Mismatch(partition=2, start=0, end=10_000, archive=9_000, broker=8_999)]
        sides = LogCopies(
            archive_alone=1_000, both=9_000, broker_alone=17, unlike=unlike, in_transactions=3, lost=0, missing=[]
        )
        log = TopicReport(
            topic=topic,
            against="the log",
            records=10_017,
            blocks=2,
            differing=[],
            versions=(7, 3),
            seconds=2.0,
            sides=sides,
        )
        return AuditReport(logs=[log])

    monkeypatch.setattr("twofold.batch.audit.table_audit.audit", audit)
    ran = cli("audit", "departures", "--from", "0:5", "--partitions", "0")
    assert asked == [("flights.departures", OffsetSelection(start={0: 5}, partitions=[0]))]
    assert ran.code == 1
    [line] = [line for line in ran.out.splitlines() if "1,000" in line]
    assert line.split() == ["flights.departures", "1,000", "9,000", "17", "1", "3", "0", "0"]
    told = "partition 2 [0, 10000): 9,000 records in the archive, 8,999 on the broker"
    assert told in " ".join(ran.err.split())
    document = cli("audit", "departures", "--json").document
    assert document["passed"] is False
    assert [told in fault for fault in document["logs"][0]["faults"]] == [True]
    assert document["logs"][0]["sides"]["unlike"][0]["broker"] == 8_999


def lose(topic: str) -> Lake:
    lake = Lake(Settings.from_environment())
    lost_offsets.ensure(lake)
    told = datetime(2013, 1, 5, tzinfo=UTC)
    lost_offsets.record(lake, [Gap(topic=topic, partition=2, start=40, end=60, recorded_at=told, why="gone", log="a")])
    return lake


def test_lost_records_fail_status_until_acknowledged(cli: Cli) -> None:
    lose("flights.departures")
    ran = cli("status")
    assert ran.code == 1
    assert "Records of flights.departures are lost." in ran.err
    [line] = [line for line in ran.out.splitlines() if "not acknowledged" in line]
    assert line.split()[:5] == ["flights.departures", "2", "[40,", "60)", "20"]
    told = cli("status", "--json")
    assert told.code == 0
    assert [(gap["start"], gap["end"], gap["acknowledged_at"]) for gap in told.document["gaps"]] == [(40, 60, None)]
    assert told.document["symptoms"][0]["text"] == "flights.departures, partition 2: offsets [40, 60) are lost: gone"

    known = cli("acknowledge", "departures", "--because", "a disk failed")
    assert (known.code, known.out.splitlines()[-1]) == (0, "1 acknowledged.")
    after = cli("status")
    assert after.code == 0
    assert "a disk failed" in after.out
    assert "has no gap that waits" in cli("acknowledge", "departures", "--because", "again").out


def test_an_acknowledgement_that_cannot_be_meant_is_refused(cli: Cli) -> None:
    lake = lose("flights.departures")
    assert cli("acknowledge", "departures", "--because", " ").code == 2
    assert cli("acknowledge", "trains", "--because", "known").code == 2
    assert [gap.is_open for gap in lost_offsets.gaps(lake)] == [True]


def test_a_share_that_cannot_be_meant_is_refused(cli: Cli) -> None:
    assert cli("audit", "--share", "1.5").code == 2


def test_a_table_that_was_never_written_has_no_certificate(cli: Cli) -> None:
    assert not Lake(Settings.from_environment()).exists("flights.delays_by_hour")
    assert load().find_table("delays_by_hour")
    ran = cli("certify", "delays_by_hour")
    assert ran.code == 2
    assert "does not exist yet" in ran.err
