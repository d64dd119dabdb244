"""What transactions fill of a log is named once, by the log that has it."""

from __future__ import annotations

import pytest

from twofold.infra.delta.lake import Lake
from twofold.infra.offset_ranges import Range
from twofold.tables.refresh.events.transaction_offsets import TRANSACTIONS, ensure, in_transactions, record

TOPIC, LOG = "plant.readings", "a"


@pytest.fixture
def ledger(lake: Lake) -> Lake:
    ensure(lake)
    return lake


def known(lake: Lake, topic: str = TOPIC, log: str = LOG) -> dict[int, list[Range]]:
    return in_transactions(lake, topic, log)


def test_a_lake_without_the_ledger_knows_none(lake: Lake) -> None:
    assert known(lake) == {}


def test_what_is_reported_again_is_not_written_again(ledger: Lake) -> None:
    record(ledger, TOPIC, LOG, {0: [(3, 4), (9, 12)], 1: [(0, 1)]})
    version = ledger.version(TRANSACTIONS)
    record(ledger, TOPIC, LOG, {0: [(3, 4), (10, 11)]})
    record(ledger, TOPIC, LOG, {})
    assert ledger.version(TRANSACTIONS) == version
    assert known(ledger) == {0: [(3, 4), (9, 12)], 1: [(0, 1)]}


def test_what_is_more_joins_what_is_known(ledger: Lake) -> None:
    record(ledger, TOPIC, LOG, {0: [(9, 12), (20, 21)]})
    record(ledger, TOPIC, LOG, {0: [(3, 4), (8, 15)]})
    assert known(ledger) == {0: [(3, 4), (8, 15), (20, 21)]}


def test_another_log_or_topic_has_its_own(ledger: Lake) -> None:
    record(ledger, TOPIC, LOG, {0: [(3, 4)]})
    record(ledger, TOPIC, "b", {0: [(3, 5)]})
    record(ledger, "plant.doors", LOG, {0: [(7, 8)]})
    assert known(ledger) == {0: [(3, 4)]}
    assert known(ledger, log="b") == {0: [(3, 5)]}
    assert known(ledger, topic="plant.doors") == {0: [(7, 8)]}
