"""Checks of tables that are partitioned, of events of an outbox, and of rows that a relay encrypts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.harness.tiers import this_run
from tests.support.bank_declarations import order, tenants
from tests.support.captured_bank import Bank
from twofold.features.capture import debezium_connector
from twofold.features.capture.tests.platform.capture_check import Check
from twofold.features.capture.tests.platform.required_copies import (
    require_orders_once,
    require_payments,
    require_tenants,
)
from twofold.infra.errors import CaptureFailed
from twofold.infra.kafka import topic_admin

LARGE_TRANSACTION = 1_000_000 if this_run.tier == "chaos" else 30_000


class Partitions(Check):
    """A partitioned table is one, also with rows that change their partition, and new partitions."""

    changes = (
        """
        UPDATE payments SET paid_on = date '2020-05-05' WHERE id <= 50; DELETE FROM payments WHERE id % 7 = 0;
        CREATE TABLE payments_2021 PARTITION OF payments FOR VALUES FROM ('2021-01-01') TO ('2022-01-01');
        INSERT INTO payments VALUES (1000, '2021-06-06', 1.25);
        """,
        "",
    )

    def validate(self, bank: Bank, changed: int) -> None:
        require_payments(bank, "id < 10000")
        assert bank.run("SELECT count(*) > 300 FROM payments WHERE id < 10000;") == [(True,)]
        assert bank.fault("payments") == ""
        if changed == 2:
            assert [found.fault for found in bank.audited("payments", "tenants")] == ["", ""]


class LargeTransaction(Check):
    """A transaction is captured whole; of a million rows where there is time for it."""

    changes = (
        "",
        f"""
        INSERT INTO payments SELECT n, date '2019-01-01' + n % 700, n
        FROM generate_series(10000, {10_000 + LARGE_TRANSACTION}) n;
        """,
    )

    def validate(self, bank: Bank, changed: int) -> None:
        amounts = bank.world.rows("bank.payments_now")["amount"].to_pylist()
        assert [(len(amounts), sum(amounts))] == bank.run("SELECT count(*), sum(amount) FROM payments;")
        assert (len(amounts) > LARGE_TRANSACTION) == (changed == 2)
        assert bank.lost("payments") == ""


class Outbox(Check):
    """Each committed order is one event: of a row that was there before or is deleted at once, never of a rollback."""

    changes = (
        order(1, "DELETE FROM outbox;")
        + order(2)
        + order(2, end="ROLLBACK")
        + "UPDATE outbox SET payload = '{}'; TRUNCATE outbox;"
        + order(3),
        order(4) + order(1, "DELETE FROM outbox;") + order(5, end="ROLLBACK"),
    )

    def validate(self, bank: Bank, changed: int) -> None:
        require_orders_once(bank)
        assert bank.fault("orders") == ""
        if changed == 1:  # a killed Connect may send an event again
            [event] = [row for row in bank.rows("orders") if row["basket"] == 3]
            assert (event["event_type"], event["aggregate_type"], event["aggregate_id"]) == ("ordered", "basket", "3")
            assert json.loads(event["_rest"]) == {"note": None, "tags": []}
            with pytest.raises(
                CaptureFailed, match=r"no column aggregatetype, aggregateid, type, payload; expected id, "
            ):
                debezium_connector.ensure(bank.settings, replace(bank.captures["orders"], table="public.payments"))


class Encrypted(Check):
    """Values of persons are encrypted behind the connector: of a snapshot, rows before and after, other columns."""

    changes = (
        f"""
        {tenants(7, 20)}
        UPDATE tenants SET flat = flat + 1;
        ALTER TABLE tenants REPLICA IDENTITY FULL;
        UPDATE tenants SET mail = 'Secret.new@Example-9.org' WHERE id = 3; DELETE FROM tenants WHERE id = 4;
        """,
        "UPDATE tenants SET id = id + 100, tenant = 't9' WHERE id = 5; UPDATE tenants SET note = mail;",
    )

    def validate(self, bank: Bank, changed: int) -> None:
        require_tenants(bank)
        assert bank.lost("tenants") == ""
        values = bank.values("bank.tenants")
        assert len(values) > 60 or changed < 2
        assert not [value for value in values if b"Secret" in value]
        if changed == 2:
            written = bank.captures["tenants"].written_topic
            kept = topic_admin.offsets(bank.settings, [written])[written][0]
            assert kept.earliest > 60, "what the topic has is removed from the intake"
