"""What a shop's programs commit, in the order of time, and the statements of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from twofold.demo.traffic.shop_database import COLUMNS, Change, connected, transactions
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings

MONDAY, TUESDAY, WEDNESDAY = date(2026, 3, 2), date(2026, 3, 3), date(2026, 3, 4)


@pytest.mark.parametrize(
    ("change", "statement"),
    [
        (
            Change("customers", "insert", {"customer": "c1", "street": "3 Poet's street"}),
            "INSERT INTO customers (customer, street) VALUES (%(customer)s, %(street)s) ON CONFLICT DO NOTHING",
        ),
        (
            Change("customers", "update", {"customer": "c1", "street": "4", "country": "AT"}),
            "UPDATE customers SET street = %(street)s, country = %(country)s WHERE customer = %(customer)s",
        ),
        (
            Change("shipments", "delete", {"shipment_id": "p1"}),
            "DELETE FROM shipments WHERE shipment_id = %(shipment_id)s",
        ),
    ],
)
def test_a_change_is_a_statement(change: Change, statement: str) -> None:
    assert change.statement == statement


def test_a_database_of_yours_is_left_alone(settings: Settings) -> None:
    yours = replace(settings, database="postgresql://me:secret@127.0.0.1:1/real")
    with pytest.raises(BadArgument, match="names one of yours"), connected(yours):
        pass


def test_transactions_are_in_the_order_of_time_and_end_with_the_range() -> None:
    found = transactions(MONDAY, WEDNESDAY)
    times = [transaction.send_at for transaction in found]
    assert times == sorted(times)
    assert times[-1] < datetime(2026, 3, 4, tzinfo=UTC)
    first = [t for t in found if t.send_at < datetime(2026, 3, 3, tzinfo=UTC)]
    assert first == transactions(MONDAY, TUESDAY)


def test_a_shipment_is_packed_for_a_known_customer_before_all_else() -> None:
    known, packed = set[str](), set[str]()
    for transaction in transactions(MONDAY, WEDNESDAY):
        for change in transaction.changes:
            assert change.row.keys() <= set(COLUMNS[change.table])
            if change.table == "customers":
                known.add(change.row["customer"])
            elif change.kind == "insert":
                assert change.row["customer"] in known
                packed.add(change.row["shipment_id"])
            else:
                assert change.row["shipment_id"] in packed
    assert len(packed) > 200
