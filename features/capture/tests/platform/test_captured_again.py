"""What a capture has lost, or no change says, is reported until the table is captured again; then it is whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.servers import wait_until
from tests.support.bank_declarations import order
from tests.support.captured_bank import Bank
from twofold.batch.audit.hash_buckets import Turn
from twofold.features.capture import debezium_connector, kafka_connect
from twofold.features.capture.captured_topic import captures
from twofold.features.capture.operate import recapture
from twofold.features.capture.operate.database_audit import compare_with_database
from twofold.features.capture.tests.platform.required_copies import (
    PEOPLE_COPIES,
    recapture_people,
    require_explained,
    require_orders_once,
    require_payments,
    require_tenants,
)
from twofold.infra.errors import CaptureFailed, ProcessFailed
from twofold.infra.process import supervisor

pytestmark = [pytest.mark.prove, pytest.mark.platform, pytest.mark.timeout(1_200)]


def test_a_detached_partition_is_reported_until_a_recapture(bank: Bank) -> None:
    """No change says that its row is gone; the connector, the slot and the marks go on. Another snapshot is made."""
    settings, topic = bank.settings, bank.registry.topics["bank.payments"]
    bank.run(
        "CREATE TABLE payments_2021 PARTITION OF payments FOR VALUES FROM ('2021-01-01') TO ('2022-01-01');",
        "INSERT INTO payments VALUES (1000, '2021-06-06', 1.25);",
    )
    bank.wait_captured("payments")
    bank.take_in("payments_now")
    assert bank.fault("payments") == ""
    bank.run("ALTER TABLE payments DETACH PARTITION payments_2021;")
    assert "payments_2021 was detached" in bank.fault("payments")
    [found] = bank.audited("payments")
    assert found.extra == ["id=1000, paid_on=2021-06-06"]
    assert found.rows == len(bank.run("SELECT 1 FROM payments;"))
    bank.captures["payments"] = capture = recapture.begin(settings, bank.lake, bank.captures["payments"])
    debezium_connector.wait_snapshot(settings, capture, 60)
    bank.wait_captured("payments")
    bank.take_in("payments_now")
    assert recapture.finish(settings, bank.lake, topic, capture) == 1
    bank.wait_captured("payments")
    bank.take_in("payments_now")
    require_payments(bank)
    assert bank.fault("payments") == ""
    assert [found.fault for found in bank.audited("payments")] == [""]


def test_an_outbox_is_captured_again_without_a_second_event(bank: Bank) -> None:
    topic = bank.registry.topics["bank.orders"]
    bank.run(order(4))
    bank.wait_captured("orders")
    again = recapture.begin(replace(bank.settings, slot_failover="on"), bank.lake, bank.captures["orders"])
    debezium_connector.wait_snapshot(bank.settings, again, 60)
    bank.take_in("orders_made")
    recapture.wait_ingested(bank.settings, bank.lake, topic)
    assert recapture.finish(bank.settings, bank.lake, topic, again) == 0
    assert debezium_connector.known(bank.settings, again) == [again]
    slots = bank.run("SELECT slot_name, failover FROM pg_replication_slots;")
    assert {("twofold_2_bank_orders", True), ("twofold_1_bank_people", False)} < {*slots}
    bank.captures["orders"] = again
    bank.wait_captured("orders")
    bank.take_in("orders_made")
    require_orders_once(bank)
    ids = [event["event_id"] for event in bank.rows("orders")]
    assert len(set(ids)) < len(ids)


def test_a_recapture_waits_for_the_relay(bank: Bank) -> None:
    settings, topic = bank.settings, bank.registry.topics["bank.tenants"]
    bank.run("INSERT INTO tenants (id, tenant) VALUES (900, 't1');")
    with bank.relaying():
        bank.wait_captured("tenants")
        bank.take_in("tenants_now")
    bank.captures["tenants"] = capture = recapture.begin(settings, bank.lake, bank.captures["tenants"])
    debezium_connector.wait_snapshot(settings, capture, 60)
    with pytest.raises(ProcessFailed, match="The relay is at offset"):
        recapture.wait_ingested(settings, bank.lake, topic, stalled_s=0.5)
    with bank.relaying():
        bank.wait_ingested("tenants")
        assert recapture.finish(settings, bank.lake, topic, capture) == 0
        bank.wait_captured("tenants")
        bank.take_in("tenants_now")
        require_tenants(bank)


def test_a_lost_slot_stops_the_capture_until_the_table_is_captured_again(bank: Bank) -> None:
    """Connect starts again, a snapshot is made, and in the end all tables are verified: half a minute."""
    settings, capture = bank.settings, bank.captures["people"]
    bank.wait_captured("people")
    bank.take_in(*PEOPLE_COPIES)
    supervisor.stop_program(settings, kafka_connect.NAME)
    of_people = f"FROM pg_replication_slots WHERE slot_name = '{capture.name}';"
    wait_until(lambda: bank.run(f"SELECT active {of_people}") == [(False,)])
    bank.run(f"SELECT pg_drop_replication_slot('{capture.name}');")
    bank.run("INSERT INTO people (id) VALUES (-100); UPDATE people SET mood = 'sad' WHERE id = 3;")
    bank.run("DELETE FROM people WHERE id = 4;")
    supervisor.start_program(settings, kafka_connect.NAME)
    kafka_connect.wait_ready(settings)
    wait_until(lambda: debezium_connector.state(settings, capture).state == "FAILED")
    assert "may be lost" in bank.fault("people")
    with pytest.raises(CaptureFailed, match="may be lost"):
        debezium_connector.ensure(settings, capture)
    lost = compare_with_database(bank.lake, bank.registry.topics["bank.people"], capture, Turn(), waits=False)
    assert (lost.missing, lost.different, lost.extra) == (["id=-100"], ["id=3: mood"], ["id=4"]), "a preview says it"
    assert recapture_people(bank) == 1
    bank.take_in(*bank.world.all_tables)
    rows = [row for row in bank.rows("people_before") if row["id"] in (3, 4)]
    assert [(row["id"], row["is_current"]) for row in rows if row["valid_to"] is None] == [(3, True)]
    require_explained(bank, *bank.world.all_tables)


def test_a_capture_that_connect_forgot_is_not_begun_from_the_start(bank: Bank) -> None:
    """As where the broker was lost: the events are there, and the connector's place is not."""
    [declared] = [capture for capture in captures(bank.registry) if capture.topic == "bank.people"]
    assert recapture.current(bank.settings, bank.lake, declared) == bank.captures["people"]
    debezium_connector.remove(bank.settings, bank.captures["people"].name)
    bank.run("DELETE FROM people WHERE id = 5;")
    with pytest.raises(CaptureFailed, match="Kafka Connect knows no capture of it"):
        recapture.current(bank.settings, bank.lake, declared)
    assert recapture_people(bank) == 1
