"""Tables of a real PostgreSQL, captured by Debezium in Kafka Connect, equal the database's own rows."""

from __future__ import annotations

import pytest

from tests.harness.tiers import this_run
from tests.support.captured_bank import Bank
from twofold.features.capture.tests.platform.capture_check import (
    Scenario,
    change,
    kill_broker,
    kill_connect,
    kill_database,
    kill_relay,
    refuse,
    take_in,
    validate,
    validate_refusals,
)
from twofold.features.capture.tests.platform.people_checks import (
    ChangedColumns,
    ChangedKeys,
    EveryType,
    Transactions,
    Truncation,
)
from twofold.features.capture.tests.platform.required_copies import people_in, recapture_people
from twofold.features.capture.tests.platform.topic_checks import Encrypted, LargeTransaction, Outbox, Partitions
from twofold.infra.project.settings import Settings

CHECKS = (
    EveryType(),
    ChangedKeys(),
    Transactions(),
    ChangedColumns(),
    Truncation(),
    Partitions(),
    LargeTransaction(),
    Outbox(),
    Encrypted(),
)
FURTHER_KILLS = (kill_database, kill_broker) if this_run.kills else ()


@pytest.mark.platform
@pytest.mark.timeout(1_200 + 60 * this_run.kills)
@pytest.mark.kills
def test_captured_tables_equal_the_database_or_say_why_not(bank: Bank, broker: Settings) -> None:
    """Real servers, of which one is killed within a large transaction and misses a minute: more than a minute."""
    with bank.relaying() as restart_relay:
        scenario = Scenario(bank, CHECKS, broker, restart_relay)
        scenario.play(take_in, validate)
        scenario.play(change, kill_relay, take_in, validate)
        scenario.play(change, kill_connect, *FURTHER_KILLS, take_in, validate)
        scenario.play(refuse, validate_refusals)
    gone = len(bank.rows("people_now")) - len(people_in(bank))
    assert gone > 20
    assert recapture_people(bank) == gone
