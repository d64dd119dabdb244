"""The account finds what is lost, repeated or misjudged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from twofold.demo.run.demo_report import TableAccount, TopicAccount, account_of_topic, record_proofs
from twofold.demo.traffic.ack_journal import AckJournal, Row, directory
from twofold.features.analysts.sql_query import Analyst
from twofold.infra.delta.lake import Lake
from twofold.infra.kafka.topic_admin import PartitionOffsets
from twofold.infra.project.settings import Settings
from twofold.status.proofs import Proof, proof_days
from twofold.tables.declare import registry

SENT = [(0, 0, "true"), (0, 1, "duplicate"), (0, 2, "corrupt:nan"), (1, 0, "true")]
BOUNDS = {
    partition: PartitionOffsets(earliest=0, earliest_local=0, latest=latest, tiered=None)
    for partition, latest in {0: 3, 1: 1, 2: 0}.items()
}


def write(lake: Lake, name: str, offsets: list[tuple[int, int]]) -> None:
    columns = {
        "_partition": pa.array([partition for partition, _ in offsets], pa.int32()),
        "_offset": pa.array([offset for _, offset in offsets], pa.int64()),
    }
    write_deltalake(lake.uri(name), pa.table(columns))


def account(
    home: Path, events: list[tuple[int, int]], quarantined: list[tuple[int, int]], sent: list[tuple[int, int, str]]
) -> TopicAccount:
    settings = Settings(home=home)
    lake = Lake(settings)
    write(lake, "flights.departures", events)
    write(lake, "flights.departures_quarantine", quarantined)
    with AckJournal(directory(settings, "flights") / "run.jsonl") as journal:
        for partition, offset, kind in sent:
            journal.append(Row("flights.departures", partition, offset, kind, "key", 0))
    topic = registry.load().find_topic("departures")
    return account_of_topic(Analyst(lake), settings, topic, BOUNDS)


def test_every_record_once_in_its_place_is_right(tmp_path: Path) -> None:
    drawn = account(tmp_path, [(0, 0), (0, 1), (1, 0)], [(0, 2)], SENT)
    assert drawn == TopicAccount(
        name="flights.departures",
        records=4,
        acknowledged=4,
        events=3,
        quarantined=1,
        missing=0,
        repeated=0,
        misjudged=0,
    )
    assert drawn.is_right


@pytest.mark.parametrize(
    ("events", "quarantined", "fault"),
    [
        ([(0, 0), (1, 0)], [(0, 2)], "missing"),
        ([(0, 0), (0, 1), (0, 1), (1, 0)], [(0, 2)], "repeated"),
        ([(0, 0), (0, 1), (1, 0)], [(0, 2), (1, 0)], "repeated"),
        ([(0, 0), (0, 1), (0, 2), (1, 0)], [], "misjudged"),
        ([(0, 0), (0, 1)], [(0, 2), (1, 0)], "misjudged"),
    ],
)
def test_each_fault_is_named(
    tmp_path: Path, events: list[tuple[int, int]], quarantined: list[tuple[int, int]], fault: str
) -> None:
    drawn = account(tmp_path, events, quarantined, SENT)
    assert {name for name in ("missing", "repeated", "misjudged") if getattr(drawn, name)} == {fault}
    assert not drawn.is_right


def test_an_acknowledged_record_that_the_broker_lost_is_missing(tmp_path: Path) -> None:
    drawn = account(tmp_path, [(0, 0), (0, 1), (1, 0)], [(0, 2)], [*SENT, (1, 1, "true")])
    assert drawn.missing == 1


def test_records_after_the_log_was_read_do_not_count(tmp_path: Path) -> None:
    """An account of a captured topic showed one event more than the log had records, and found nothing wrong."""
    drawn = account(tmp_path, [(0, 0), (0, 1), (0, 3), (1, 0), (2, 0)], [(0, 2), (1, 1)], SENT)
    assert (drawn.records, drawn.events, drawn.quarantined) == (4, 3, 1)
    assert drawn.is_right


def test_a_record_whose_acknowledgement_a_kill_cut_off_is_no_fault(tmp_path: Path) -> None:
    assert account(tmp_path, [(0, 0), (0, 1), (1, 0)], [(0, 2)], SENT[:-1]).is_right


def test_what_the_demo_compared_is_on_the_page_of_proofs(tmp_path: Path) -> None:
    lake, name = Lake(Settings(home=tmp_path)), "flights.carrier_days"
    write(lake, name, [(0, 0)])
    drawn = TableAccount(
        name=name, rows=9, by_stream=7, late=3, corrected=2, unexplained=0, compared=8, missing=0, extra=1, changed=0
    )
    record_proofs(lake, registry.load(), [drawn])
    [proof] = proof_days(lake, datetime.now(UTC) - timedelta(days=1))[name, "audit"].values()
    assert proof == Proof(audits=1, repairs=0, rows=8, unexplained=1, is_whole=True)
